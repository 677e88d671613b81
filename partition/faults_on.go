//go:build edged_faults

package partition

import "fmt"

var (
	faultNoBootID, faultIgnoreClaims, faultEarlyAnswer, faultEarlyVote, faultKeepNextOffset,
	faultLoseProducers, faultStaleReads, faultOffsetAtApply, faultForgetConf, faultNoBaseRecord, faultHighTooEarly,
	faultNoSequences bool
)

// PlantFault switches one fault on or off. It exists only under the build tag edged_faults.
func PlantFault(name string, on bool) error {
	f := map[string]*bool{
		"no-boot-id": &faultNoBootID, "ignore-claims": &faultIgnoreClaims, "early-answer": &faultEarlyAnswer,
		"early-vote": &faultEarlyVote, "keep-next-offset": &faultKeepNextOffset, "lose-producers": &faultLoseProducers,
		"stale-reads": &faultStaleReads, "offset-at-apply": &faultOffsetAtApply, "forget-conf": &faultForgetConf,
		"no-base-record": &faultNoBaseRecord, "high-too-early": &faultHighTooEarly, "no-sequences": &faultNoSequences,
	}[name]
	if f == nil {
		return fmt.Errorf("no fault named %q", name)
	}
	*f = on
	return nil
}
