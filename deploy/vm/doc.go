// Package vm tries the release in virtual machines with real kernels of Debian: a Pi Zero (ARMv6), an ARMv7
// board and an arm64 board with pages of 16 KiB as on a Pi 5. They are emulated, so nothing is learned about
// speed. Its test needs qemu-system-arm, a directory with the kernels (deploy/vm/kernels gets them) and the
// binaries:
//
//	EDGED_VM_KERNELS=DIR EDGED_BINARIES=bin go test -v ./deploy/vm
package vm
