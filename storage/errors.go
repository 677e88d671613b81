package storage

import "strings"

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
