//go:build !linux

package main

// calmRuntime does nothing here.
func calmRuntime() {}
