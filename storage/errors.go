package storage

import (
	"regexp"
	"strings"
)

// join is errors.Join for people: on one line, and each text once.
func join(errs ...error) error {
	var kept joined
	for _, err := range errs {
		if err != nil && !kept.says(err) {
			kept = append(kept, err)
		}
	}
	switch len(kept) {
	case 0:
		return nil
	case 1:
		return kept[0]
	}
	return kept
}

// joined are several errors that stand for one.
type joined []error

func (j joined) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (j joined) Unwrap() []error { return j }

func (j joined) says(err error) bool {
	for _, e := range j {
		if strings.Contains(e.Error(), err.Error()) {
			return true
		}
	}
	return false
}

// oneLine is err with its text on one line and without the engine's name: the engine adds details on further lines.
func oneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") && !engineWord.MatchString(err.Error()) {
		return err
	}
	return flat{err}
}

// engineWord is how the engine's errors begin.
var engineWord = regexp.MustCompile(`\bpebble(/\w+)?: `)

// engineCarrier is the text of an error in which the engine hands details on; it says nothing.
const engineCarrier = "<corruption detail carrier>"

type flat struct{ error }

func (f flat) Error() string {
	lines := strings.FieldsFunc(f.error.Error(), func(r rune) bool { return r == '\n' })
	kept := lines[:0]
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != engineCarrier {
			kept = append(kept, l)
		}
	}
	return engineWord.ReplaceAllString(strings.Join(kept, "; "), "")
}

func (f flat) Unwrap() error { return f.error }
