package kafka

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs, key 32, versions 0 to 4.
//
// A topic is answered with every setting there is, defaults too: tools stumble over what they miss.
// The settings of a node are asked of that node; another one answers INVALID_REQUEST.
//
//	v1: sources and synonyms
//	v3: types and documentation
//	v4: flexible
func init() { register(0, 4, (*call).describeConfigs) }

// maxDescribed bounds the resources that one request describes: each is answered with dozens of settings.
const maxDescribed = 1000

func (q *call) describeConfigs(req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		settings, err := q.settings(r.ResourceType, r.ResourceName)
		if i >= maxDescribed {
			settings, err = nil, fmt.Errorf("%w: at most %d resources are described at once", kerr.InvalidRequest, maxDescribed)
		}
		out.ErrorCode, out.ErrorMessage = q.code(err), message(err)
		source := kmsg.ConfigSourceDynamicTopicConfig
		if r.ResourceType == kmsg.ConfigResourceTypeBroker {
			source = kmsg.ConfigSourceStaticBrokerConfig
		}
		for _, s := range settings {
			if len(r.ConfigNames) == 0 || slices.Contains(r.ConfigNames, s.Name) {
				out.Configs = append(out.Configs, s.describe(req, source))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (q *call) settings(kind kmsg.ConfigResourceType, name string) ([]Setting, error) {
	b := q.conn.s.cfg.Broker
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := validTopicName(name); err != nil {
			return nil, err
		}
		t, err := b.DescribeTopic(name)
		return t.Settings, forAdmin(err)
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return nil, nil // what all nodes would have in common: nothing is kept so
		}
		if self := b.Cluster(q.conn.at).Self; name != strconv.Itoa(int(self)) {
			return nil, fmt.Errorf("%w: this is node %d; ask node %.40s for its settings", kerr.InvalidRequest, self, name)
		}
		return b.NodeSettings(), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: resources of type %d have no settings here", kerr.InvalidRequest, kind)
}

func (s *Setting) source(explicit kmsg.ConfigSource) kmsg.ConfigSource {
	if s.Explicit {
		return explicit
	}
	return kmsg.ConfigSourceDefaultConfig
}

func (s *Setting) describe(req *kmsg.DescribeConfigsRequest, explicit kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value, out.ReadOnly, out.IsDefault = s.Name, &s.Value, s.ReadOnly, !s.Explicit
	out.Source, out.ConfigType = s.source(explicit), kmsg.ConfigType(s.Type)
	if req.IncludeSynonyms {
		if s.Explicit {
			out.ConfigSynonyms = append(out.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{Name: s.Name, Value: &s.Value, Source: explicit})
		}
		out.ConfigSynonyms = append(out.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{Name: s.Name, Value: &s.Default, Source: kmsg.ConfigSourceDefaultConfig})
	}
	if req.IncludeDocumentation {
		out.Documentation = nonEmpty(s.Doc)
	}
	return out
}

// forTopic makes sure that settings are changed of a topic: those of nodes are in their own files.
func (q *call) forTopic(kind kmsg.ConfigResourceType, name string) (Topic, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if name == "" {
			return Topic{}, fmt.Errorf("%w: settings are changed of a topic with a name", kerr.InvalidRequest)
		}
		if err := validTopicName(name); err != nil {
			return Topic{}, err
		}
		t, err := q.conn.s.cfg.Broker.DescribeTopic(name)
		return t, forAdmin(err)
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
		return Topic{}, fmt.Errorf("%w: the settings of a node are in its configuration file and take effect at its start", kerr.InvalidRequest)
	}
	return Topic{}, fmt.Errorf("%w: resources of type %d have no settings here", kerr.InvalidRequest, kind)
}
