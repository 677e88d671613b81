package main

import "testing"

func TestDebianVersion(t *testing.T) {
	for in, want := range map[string]string{
		"v1.2.3":             "1.2.3",
		"0.1.0":              "0.1.0",
		"v1.2.3-4-gabcdef":   "1.2.3+4+gabcdef",
		"v2.0.0-rc1":         "2.0.0~rc1",
		"v2.0.0-beta2-dirty": "2.0.0~beta2+dirty",
		"devel":              "0.0.0~devel",
		"":                   "0.0.0~",
	} {
		if got := debianVersion(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
