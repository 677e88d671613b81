package kafka

import (
	"testing"

	"edged/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
