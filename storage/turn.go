package storage

// turn is a mutex for those who may wait for the disk while they hold it. It is a channel because others can then be
// seen to wait for something: under testing/synctest time goes on meanwhile, behind a sync.Mutex it would stand still
// for ever. Made by newTurn.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }
