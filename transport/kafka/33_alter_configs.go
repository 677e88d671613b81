package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs, key 33, versions 0 to 2: what is not named goes back to its default. Any node takes it.
//
//	v2: flexible
func init() { register(0, 2, (*call).alterConfigs) }

func (q *call) alterConfigs(req *kmsg.AlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	times := map[resource]int{}
	for _, r := range req.Resources {
		times[resource{r.ResourceType, r.ResourceName}]++
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewAlterConfigsResponseResource()
		err := q.replaceSettings(ctx, req.ValidateOnly, r)
		if times[resource{r.ResourceType, r.ResourceName}] > 1 {
			err = errTwice
		}
		out.ResourceType, out.ResourceName, out.ErrorCode, out.ErrorMessage = r.ResourceType, r.ResourceName, q.code(err), message(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// resource is what has settings.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

var errTwice = fmt.Errorf("%w: the resource is named twice", kerr.InvalidRequest)

func (q *call) replaceSettings(ctx context.Context, validateOnly bool, r *kmsg.AlterConfigsRequestResource) error {
	t, err := q.forTopic(r.ResourceType, r.ResourceName)
	if err != nil {
		return err
	}
	alter := AlterTopic{Topic: t.Name, Set: map[string]string{}, ValidateOnly: validateOnly}
	for _, c := range r.Configs {
		if _, twice := alter.Set[c.Name]; twice || c.Value == nil {
			return fmt.Errorf("%w: %.80s is null or named twice", kerr.InvalidRequest, c.Name)
		}
		alter.Set[c.Name] = *c.Value
	}
	for _, s := range t.Settings {
		if _, named := alter.Set[s.Name]; s.Explicit && !named {
			alter.Unset = append(alter.Unset, s.Name)
		}
	}
	return forAdmin(q.conn.s.cfg.Broker.AlterTopic(ctx, alter))
}
