// Package interop lets the clients that people use judge edged: each produces, consumes, shares
// topics in groups, and loses a leader under load, against three real edged processes on loopback.
//
//	make interop                        all clients, all that is tried
//	make interop JUDGES="kcat kgo"      some of them
//	make interop SHORT=1                without what takes long; what CI runs
//	make interop-suites                 the clients' own test suites against edged
//	make interop-ports                  both ports of a node beside each other
//
// It is a module of its own, so that the clients stay out of edged's. Each has a folder with a
// small driver in its own language that speaks the lines of package driver; all judgement is here
// and the same for all. Their versions are pinned: in go.mod, package-lock.json or requirements.txt,
// but for kcat, which is the distribution's. What is missing is installed, into EDGED_INTEROP_CACHE
// or the user's cache directory.
package interop
