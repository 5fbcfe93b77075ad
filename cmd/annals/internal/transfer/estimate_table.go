package transfer

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
)

// listed is how many files are shown of those that were skipped, and of those with remarks.
const listed = 20

// printRemarks writes what was left out of files, or is not certain.
func printRemarks(b *strings.Builder, e client.Estimate) {
	shown := 0
	for _, f := range e.Files {
		for _, r := range f.Remarks {
			if shown++; shown <= listed {
				_, _ = fmt.Fprintf(b, "remark: %s: %s\n", f.Path, r.Text)
			}
		}
	}
	if shown > listed {
		_, _ = fmt.Fprintf(b, "remark: %d more; --json lists them\n", shown-listed)
	}
}

// noTime is the code of the remark that counts data points without a time.
const noTime = "no-time"

// PrintEstimate writes a table by kind, the skipped files, and what the balance allows.
func PrintEstimate(out io.Writer, e client.Estimate) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "kind\tfiles\tdata points\tno time\tbytes\tcredits\t")
	for _, row := range byKind(e) {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", row.kind, humanize.Comma(row.files),
			humanize.Comma(row.points), humanize.Comma(row.noTime), humanize.IBytes(uint64(row.bytes)), //nolint:gosec // a size
			creditsText(e.Metered, row.tenths))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	var b strings.Builder
	printRemarks(&b, e)
	skipped := 0
	for _, f := range e.Files {
		if f.Skipped == nil {
			continue
		}
		if skipped++; skipped <= listed {
			_, _ = fmt.Fprintf(&b, "skipped: %s %s\n", f.Path, *f.Skipped)
		}
	}
	if skipped > listed {
		_, _ = fmt.Fprintf(&b, "skipped: %d more; --json lists them\n", skipped-listed)
	}
	b.WriteString(verdict(e))
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// verdict is the line about what fits.
func verdict(e client.Estimate) string {
	batches := english.Plural(len(e.Batches), "batch", "batches")
	switch {
	case e.DataPoints == 0:
		return "nothing to import\n"
	case !e.Fits:
		left := ""
		if e.Balance.Left != nil {
			left = " of " + e.Balance.Left.String() + " credits that are left"
		}
		return fmt.Sprintf("%s in %s do not fit: the first %s would pass%s\n",
			english.Plural(e.DataPoints, "data point", "data points"), batches, humanize.Comma(int64(e.FitsFirst)), left)
	case e.Balance.Left != nil:
		return fmt.Sprintf("%s fits: %s credits are left\n", batches, e.Balance.Left)
	default:
		return batches + ", nothing is charged\n"
	}
}

type kindRow struct {
	kind                                 string
	files, points, noTime, bytes, tenths int64
}

// byKind adds the files up by kind, with the sum last.
func byKind(e client.Estimate) []kindRow {
	rows := map[string]*kindRow{}
	sum := kindRow{kind: "all"}
	for _, f := range e.Files {
		if f.Skipped != nil || f.Kind == nil {
			continue
		}
		r := rows[*f.Kind]
		if r == nil {
			r = &kindRow{kind: *f.Kind}
			rows[*f.Kind] = r
		}
		tenths, err := tenthsOf(f.Credits)
		if err != nil {
			continue // the sum was read before
		}
		for _, to := range []*kindRow{r, &sum} {
			to.files++
			to.points += int64(f.Points)
			to.bytes += f.Bytes
			to.tenths += tenths
			for _, m := range f.Remarks {
				if m.Code == noTime {
					to.noTime += int64(m.Count)
				}
			}
		}
	}
	var list []kindRow
	for _, r := range rows {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b kindRow) int { return cmp.Compare(a.kind, b.kind) })
	return append(list, sum)
}

func creditsText(metered bool, tenths int64) string {
	if !metered {
		return "-"
	}
	return tenthsText(tenths)
}
