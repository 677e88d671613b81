package wire

import (
	"errors"
	"strings"

	"edged/record"
)

// maxErrorMessage bounds in bytes the text of an error on the wire.
const maxErrorMessage = 1024

// fault is an error as it stands on the wire: a map that names its keys, so that a person
// reading a packet dump and a client of another age both understand it. No error is nil.
func (w *walker) fault(err *error) {
	if !w.next() {
		return
	}
	if w.enc == nil {
		*err = w.readFault()
		return
	}
	w.writeFault(*err)
}

func (w *walker) writeFault(err error) {
	if err == nil {
		w.fail(w.enc.EncodeNil())
		return
	}
	var nl *record.NotLeaderError
	fields := 3
	if errors.As(err, &nl) {
		fields = 6
	}
	w.fail(w.enc.EncodeMapLen(fields))
	w.pair("code", func() error { return w.enc.EncodeString(record.Code(err)) })
	w.pair("message", func() error { return w.enc.EncodeString(shorten(err.Error())) })
	w.pair("retriable", func() error { return w.enc.EncodeBool(record.Retriable(err)) })
	if nl != nil {
		w.pair("leader", func() error { return w.enc.EncodeInt(int64(nl.Leader)) })
		w.pair("addr", func() error { return w.enc.EncodeString(nl.Addr) })
		w.pair("epoch", func() error { return w.enc.EncodeInt(int64(nl.Epoch)) })
	}
}

func (w *walker) pair(key string, value func() error) {
	w.fail(w.enc.EncodeString(key))
	w.fail(value())
}

// readFault gives a *record.NotLeaderError for its code and a *record.Error for any other,
// which equals the sentinel of the same code.
func (w *walker) readFault() error {
	if w.peekNil() {
		w.fail(w.dec.DecodeNil())
		return nil
	}
	n := w.mapLength()
	if n > maxErrorFields {
		w.fail(errors.New("an error with too many fields"))
		return nil
	}
	e := &record.Error{Code: record.ErrInternal.Code}
	nl := &record.NotLeaderError{Leader: record.NoNode, Epoch: record.NoEpoch}
	for range n {
		w.element(func() { w.faultField(e, nl) })
	}
	switch {
	case w.err != nil:
		return nil
	case e.Code == record.CodeNotLeader:
		return nl
	}
	return e
}

func (w *walker) faultField(e *record.Error, nl *record.NotLeaderError) {
	switch string(w.take(MaxString)) {
	case "code":
		w.str(&e.Code)
	case "message":
		w.str(&e.Message)
	case "retriable":
		w.boolean(&e.Retriable)
	case "leader":
		num(w, &nl.Leader)
	case "addr":
		w.str(&nl.Addr)
	case "epoch":
		num(w, &nl.Epoch)
	default:
		w.skip(1, maxSkipDepth)
	}
}

// shorten cuts a message to what goes on the wire: one line of valid text.
func shorten(s string) string {
	s = s[:min(len(s), maxErrorMessage)]
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\n", "; ")
}
