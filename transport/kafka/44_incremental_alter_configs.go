package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs, key 44, versions 0 to 1: what is not named stays. Any node takes it.
//
//	v1: flexible
func init() { register(0, 1, (*call).incrementalAlterConfigs) }

func (q *call) incrementalAlterConfigs(req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	times := map[resource]int{}
	for _, r := range req.Resources {
		times[resource{r.ResourceType, r.ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		err := errTwice
		if times[resource{r.ResourceType, r.ResourceName}] == 1 {
			err = q.changeSettings(ctx, req.ValidateOnly, r)
		}
		out.ResourceType, out.ResourceName, out.ErrorCode, out.ErrorMessage = r.ResourceType, r.ResourceName, q.code(err), message(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (q *call) changeSettings(ctx context.Context, validateOnly bool, r *kmsg.IncrementalAlterConfigsRequestResource) error {
	t, err := q.forTopic(r.ResourceType, r.ResourceName)
	if err != nil {
		return err
	}
	alter := AlterTopic{Topic: t.Name, Set: map[string]string{}, ValidateOnly: validateOnly}
	seen := map[string]bool{}
	for _, c := range r.Configs {
		if seen[c.Name] {
			return fmt.Errorf("%w: %.80s is named twice", kerr.InvalidRequest, c.Name)
		}
		seen[c.Name] = true
		switch {
		case c.Op == kmsg.IncrementalAlterConfigOpDelete:
			alter.Unset = append(alter.Unset, c.Name)
		case c.Value == nil:
			return fmt.Errorf("%w: %.80s is null", kerr.InvalidRequest, c.Name)
		case c.Op == kmsg.IncrementalAlterConfigOpSet:
			alter.Set[c.Name] = *c.Value
		case c.Op == kmsg.IncrementalAlterConfigOpAppend, c.Op == kmsg.IncrementalAlterConfigOpSubtract:
			i := slices.IndexFunc(t.Settings, func(s Setting) bool { return s.Name == c.Name && s.Type == TypeList })
			if i < 0 {
				return fmt.Errorf("%w: %.80s is no list, nothing can be added to it or taken from it", kerr.InvalidConfig, c.Name)
			}
			alter.Set[c.Name] = changeList(t.Settings[i].Value, *c.Value, c.Op == kmsg.IncrementalAlterConfigOpAppend)
		default:
			return fmt.Errorf("%w: operation %d on %.80s", kerr.InvalidRequest, c.Op, c.Name)
		}
	}
	return forAdmin(q.conn.s.cfg.Broker.AlterTopic(ctx, alter))
}

// changeList adds words to a list with commas, each once, or takes them from it.
func changeList(list, words string, add bool) string {
	var out []string
	for _, w := range strings.Split(list, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	for _, w := range strings.Split(words, ",") {
		w = strings.TrimSpace(w)
		at := slices.Index(out, w)
		switch {
		case add && at < 0 && w != "":
			out = append(out, w)
		case !add && at >= 0:
			out = slices.Delete(out, at, at+1)
		}
	}
	return strings.Join(out, ",")
}
