//go:build race

package storage

// underRace: the race detector makes the random tests ten times as slow, and needs fewer of them.
const underRace = true
