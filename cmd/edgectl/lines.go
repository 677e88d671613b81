package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"edged/client"
	"edged/record"
)

// maxLine bounds one input line in bytes, and with it what produce reads into memory at once.
const maxLine = 8 << 20

// lines turns input into records, one per line.
type lines struct {
	in        *bufio.Reader
	separator []byte // between key and value; nil: the line is the value
	key       []byte // of every record, unless there is a separator
	null      []byte // a key or value of exactly this text is null; nil: none is
	json      bool   // each line is an object as consume --json prints it
	n         int64  // lines read
}

// record gives the next record without its topic, or io.EOF.
func (l *lines) record() (client.Record, error) {
	if !l.json {
		k, v, err := l.next()
		return client.Record{Key: k, Value: v}, err
	}
	line, err := l.line()
	if err != nil {
		return client.Record{}, err
	}
	r, err := fromJSON(line)
	if err != nil {
		return r, &usageError{fmt.Sprintf("line %d is no record as consume --json prints it: %v", l.n, err)}
	}
	return r, nil
}

// next gives the next record, or io.EOF. The slices are the caller's to keep. The \n that
// ends a line is no part of it, and the last line needs none; every other byte is kept. An
// empty line is a record with an empty value, not null.
func (l *lines) next() (key, value []byte, err error) {
	line, err := l.line()
	if err != nil {
		return nil, nil, err
	}
	if l.separator == nil {
		return l.nullable(l.key), l.nullable(line), nil
	}
	key, value, found := bytes.Cut(line, l.separator)
	if !found {
		return nil, nil, fmt.Errorf("line %d has no key separator %q", l.n, l.separator)
	}
	return l.nullable(key), l.nullable(value), nil
}

func (l *lines) line() ([]byte, error) {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return nil, fmt.Errorf("line %d is longer than %d bytes: %w", l.n+1, maxLine, record.ErrTooLarge)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == io.EOF && len(line) > 0 {
			break
		}
		if err == io.EOF {
			return nil, io.EOF
		}
		if err != nil {
			return nil, fmt.Errorf("reading line %d: %w", l.n+1, err)
		}
		break
	}
	l.n++
	line = bytes.TrimSuffix(line, []byte("\n"))
	if line == nil {
		line = []byte{}
	}
	return line, nil
}

func (l *lines) nullable(b []byte) []byte {
	if l.null != nil && b != nil && bytes.Equal(b, l.null) {
		return nil
	}
	return b
}
