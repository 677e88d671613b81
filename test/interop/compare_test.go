//go:build linux

package interop

import "testing"

func TestCompare_findsWhatIsWrong(t *testing.T) {
	good := kept{
		places: map[string][]at{"a00-000000": {{0, 0}}, "a01-000001": {{1, 0}}, "a00-000002": {{0, 1}}, "b00-000000": {{0, 2}, {0, 3}}},
		order:  []string{"a00-000000", "a00-000002", "b00-000000", "a01-000001"},
	}
	for name, tc := range map[string]struct {
		acked             map[string]at
		prefix            string
		change            func(*kept)
		lost              int
		twice, disordered int
	}{
		"good":                  {acked: map[string]at{"a00-000000": {0, 0}, "a01-000001": {-1, -1}, "a00-000002": {0, 1}}, prefix: "a"},
		"of another":            {acked: map[string]at{"b00-000000": {0, 3}}, prefix: "b", twice: 1},
		"lost":                  {acked: map[string]at{"a00-000000": {0, 0}, "a02-000003": {-1, -1}}, prefix: "a", lost: 1},
		"elsewhere":             {acked: map[string]at{"a00-000000": {0, 7}}, prefix: "a", lost: 1},
		"out of order, of a":    {prefix: "a", change: func(k *kept) { k.order = []string{"a00-000002", "a00-000000", "a01-000001"} }, disordered: 1},
		"twice, and of the key": {prefix: "a", change: func(k *kept) { k.places = map[string][]at{"a00-000000": {{0, 0}, {0, 4}}}; k.order = k.order[:1] }, twice: 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := good
			if tc.change != nil {
				tc.change(&k)
			}
			v := compare(tc.acked, tc.prefix, k)
			if len(v.lost) != tc.lost || v.twice != tc.twice || v.disordered != tc.disordered {
				t.Errorf("the verdict is %+v", v)
			}
		})
	}
}
