package record

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// declaredErrors reads the sentinels off the source, so that a new one cannot be left out.
func declaredErrors(t *testing.T) (codes []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || fmt.Sprint(lit.Type) != "Error" || len(lit.Elts) != 3 {
			return true
		}
		code, err := strconv.Unquote(lit.Elts[0].(*ast.BasicLit).Value)
		message, err2 := strconv.Unquote(lit.Elts[1].(*ast.BasicLit).Value)
		if err != nil || err2 != nil || code == "" || message == "" || strings.Contains(message, "\n") {
			t.Errorf("code %q with message %q", code, message)
		}
		codes = append(codes, code)
		return true
	})
	return codes
}

func TestErrors_haveACodeEachAndNoneTwice(t *testing.T) {
	seen := map[string]bool{CodeNotLeader: true}
	codes := declaredErrors(t)
	if len(codes) < 20 {
		t.Fatalf("found %d errors in the source", len(codes))
	}
	for _, code := range codes {
		if seen[code] {
			t.Errorf("code %q is used twice", code)
		}
		seen[code] = true
	}
}

func TestCode_survivesWrappingAndTheWire(t *testing.T) {
	wrapped := fmt.Errorf("topic %q: %w", "t", ErrUnknownTopic)
	if Code(wrapped) != "unknown_topic" || Code(nil) != "" || Code(errors.New("x")) != "internal" {
		t.Error("codes are not those of the wrapped errors")
	}
	if got := Code(fmt.Errorf("a: %w", &NotLeaderError{Leader: NoNode})); got != CodeNotLeader {
		t.Errorf("a not-leader error has code %q", got)
	}
	if !errors.Is(&Error{Code: "busy", Message: "read from a frame"}, ErrBusy) || errors.Is(ErrBusy, ErrTimeout) {
		t.Error("errors from the wire are not their sentinels")
	}
	for err, want := range map[error]bool{ErrBusy: true, wrapped: false, errors.New("x"): false, &NotLeaderError{}: true} {
		if Retriable(err) != want {
			t.Errorf("%v: retriable is %v", err, !want)
		}
	}
}

func TestNotLeaderError_saysWhereToGo(t *testing.T) {
	if got := (&NotLeaderError{Leader: 7, Addr: "10.0.0.7:7400", Epoch: 3}).Error(); !strings.Contains(got, "node 7 at 10.0.0.7:7400") {
		t.Error(got)
	}
	if got := (&NotLeaderError{Leader: NoNode}).Error(); !strings.Contains(got, "retry") {
		t.Error(got)
	}
}
