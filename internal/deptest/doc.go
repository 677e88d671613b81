// Package deptest holds, as a test, which package of edged may import which. The tables
// are in arrows_test.go; the design they follow is in docs/design.md.
package deptest
