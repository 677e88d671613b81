// Package deptest holds, as tests, what no single package can see: which package of edged
// may import which (the tables are in arrows_test.go, the design they follow is in
// docs/design.md), and that the documents name commands and files that exist.
package deptest
