package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"edged/record"
)

// printJSON writes one value on one line.
func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// table writes rows in columns, the first row being the headings.
type table struct{ rows [][]string }

func newTable(headings ...string) *table { return &table{rows: [][]string{headings}} }

// row adds a row; each value is printed as fmt does.
func (t *table) row(values ...any) {
	row := make([]string, len(values))
	for i, v := range values {
		row[i] = fmt.Sprint(v)
	}
	t.rows = append(t.rows, row)
}

func (t *table) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return out.Flush()
}

// countText is a number of things: 1 record, 2 records, 2 entries.
func countText[N ~int | ~int32 | ~int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok && !strings.HasSuffix(stem, "a") {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// nodeText is a node in a table, - for none.
func nodeText(n record.NodeID) string {
	if n == record.NoNode {
		return "-"
	}
	return n.String()
}

// nodesText is a list of nodes in a table.
func nodesText(ns []record.NodeID) string {
	texts := make([]string, len(ns))
	for i, n := range ns {
		texts[i] = n.String()
	}
	return orDash(strings.Join(texts, ","))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// offsetText is an offset in a table; -1 is one that the answering node does not know.
func offsetText(o record.Offset) string {
	if o < 0 {
		return "?"
	}
	return fmt.Sprint(int64(o))
}

// bytesText is a size for people; negative is not known.
func bytesText(n int64) string {
	switch {
	case n < 0:
		return "?"
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
