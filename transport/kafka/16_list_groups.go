package kafka

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups, key 16, versions 0 to 5. It lists the groups that this node coordinates; clients ask all.
//
//	v3: flexible
//	v4: filter by state
//	v5: filter by type: all groups are classic
func init() { register(0, 5, (*call).listGroups, ofGroups) }

const classicGroup = "classic"

func (q *call) listGroups(req *kmsg.ListGroupsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	ctx, cancel := q.context(0)
	defer cancel()
	groups, err := q.conn.s.cfg.Groups.ListGroups(ctx)
	resp.ErrorCode = q.code(q.forCoordinator(err))
	wanted := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	for _, g := range groups {
		if !wanted(req.StatesFilter, g.State) || !wanted(req.TypesFilter, classicGroup) {
			continue
		}
		out := kmsg.NewListGroupsResponseGroup()
		out.Group, out.ProtocolType, out.GroupState, out.GroupType = g.Group, g.ProtocolType, g.State, classicGroup
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}
