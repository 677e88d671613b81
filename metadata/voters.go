package metadata

import "edged/record"

// How many nodes it takes to have three and five voters in the metadata group.
const (
	threeVotersFrom = 3
	fiveVotersFrom  = 7
)

// voterCount is how many of n nodes vote: never an even number, because the second of two
// voters only adds a way to stop.
func voterCount(n int) int {
	switch {
	case n >= fiveVotersFrom:
		return 5
	case n >= threeVotersFrom:
		return 3
	}
	return 1
}

// DesiredVoters gives the nodes that should vote in the metadata group.
func DesiredVoters(p *Picture, current []record.NodeID, alive map[record.NodeID]bool, allowReplace bool) []record.NodeID {
	return current
}
