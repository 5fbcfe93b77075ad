package web

import (
	"slices"
	"testing"
)

func TestSafeCells_Formulas(t *testing.T) {
	for _, cell := range []string{
		"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\r\n=1", "＝1+1", "＋1", "－1", "＠SUM(A1)", "=", "＝",
	} {
		row := []string{"plain", cell}
		if got := safeCells(row); !slices.Equal(got, []string{"plain", "'" + cell}) || row[1] != cell {
			t.Errorf("%q is written as %q", cell, got)
		}
	}
	for _, cell := range []string{"", "1=1", "a+b", " =1", "'=1", "−1", "\xff=1", "é", "ー"} {
		if got := safeCells([]string{cell}); got[0] != cell {
			t.Errorf("%q is written as %q", cell, got)
		}
	}
}
