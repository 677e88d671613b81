//go:build !edged_faults

package partition

// Faults that tests plant on purpose, to prove that the simulator finds them. Without the build tag
// they are constants: the compiler drops every check and no release can have one.
const (
	faultNoBootID       = false // frames of another life are taken
	faultIgnoreClaims   = false // digests of led groups are not compared
	faultEarlyAnswer    = false // messages leave before their save
	faultEarlyVote      = false // vote requests leave before their save
	faultKeepNextOffset = false // the next offset stays as it was when the log is cut
	faultLoseProducers  = false // base records carry no producer table
	faultStaleReads     = false // a leader serves before it committed in its epoch
	faultOffsetAtApply  = false // the offset after applied entries is given, not that after the log
	faultNoBaseRecord   = false // a follower behind the log's beginning is sent no base record
	faultHighTooEarly   = false // a new leader's high watermark is the end of its log
	faultForgetConf     = false // a configuration change is written down when other things are
	faultNoSequences    = false // producers' sequence numbers are not looked at
)
