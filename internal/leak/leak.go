// Package leak makes a package's tests fail if they leave goroutines behind: a node
// runs for years, and what each stopped part leaves adds up.
package leak

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs the package's tests, then fails the run if goroutines are left. Use it as
//
//	func TestMain(m *testing.M) { leak.Main(m) }
//
// A goroutine that is on its way out is waited for; one that stays is printed with its
// stack. There is no list of exceptions: whoever starts goroutines has a Close that ends them.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }
