package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/sources"
)

// estimateTimeout is how long a request with many files may take.
const estimateTimeout = 3 * time.Minute

// Cut is how files are cut into data points.
type Cut struct {
	// Kind is what all files are, "" if the server detects it for each one.
	Kind string
	// TimeZone is the zone of times that are written without one, "" for UTC.
	TimeZone string
}

// Estimate asks the server what files, and the files of folders, would become and cost.
func Estimate(
	ctx context.Context, connect Connect, paths []string, cut Cut, show terminal.Streams,
) (client.Estimate, error) {
	to, err := connect(client.WithAttemptTimeout(estimateTimeout))
	if err != nil {
		return client.Estimate{}, err
	}
	files, err := sources.Find(paths...)
	if err != nil {
		return client.Estimate{}, err
	}
	return estimateFiles(ctx, files, cut, show, to.Estimate)
}

// estimateFiles lets ask estimate one request after the other, and adds the answers up.
func estimateFiles(
	ctx context.Context, files []sources.File, cut Cut, show terminal.Streams,
	ask func(context.Context, client.EstimateRequest) (*client.Estimate, error),
) (client.Estimate, error) {
	sum := estimateSum{Estimate: client.Estimate{
		Files: []client.EstimatedFile{}, Batches: []client.EstimatedBatch{}, Points: []client.EstimatedPoint{},
		TimeZone: cmp.Or(cut.TimeZone, "UTC"),
	}}
	bar := show.Progress(0)
	defer bar.End()
	for request, err := range sources.Requests(ctx, files, cut.Kind) {
		if err != nil {
			return sum.Estimate, err
		}
		got := &client.Estimate{}
		if len(request.Files) > 0 {
			got, err = ask(ctx, client.EstimateRequest{Files: request.Files, TimeZone: cut.TimeZone})
			if err != nil {
				return sum.Estimate, err
			}
		}
		for i, remark := range request.Remarks {
			if i < len(got.Files) && got.Files[i].Skipped == nil {
				got.Files[i].Remarks = append([]client.EstimateRemark{remark}, got.Files[i].Remarks...)
			}
		}
		if err := sum.add(*got, request.Skipped, len(request.Files) > 0); err != nil {
			return sum.Estimate, err
		}
		bar.Show(terminal.Step{Plain: fmt.Sprintf("%s of %s read", humanize.Comma(int64(len(sum.Files))),
			english.Plural(len(files), "file", "files"))})
	}
	return sum.Estimate, nil
}

// estimateSum is the estimates of several requests as one.
type estimateSum struct {
	client.Estimate
	requests int
	tenths   int64
	// full is true from the first request on that does not fit what the earlier ones leave.
	full bool
}

// add adds the estimate of a request; asked is false for files that were all left out here.
func (s *estimateSum) add(e client.Estimate, skipped []client.EstimatedFile, asked bool) error {
	s.Files = append(append(s.Files, e.Files...), skipped...)
	if !asked {
		s.Fits = s.Fits || s.requests == 0
		return nil
	}
	tenths, err := tenthsOf(e.Credits)
	if err != nil {
		return err
	}
	s.requests++
	for _, b := range e.Batches {
		b.Index = len(s.Batches)
		s.Batches = append(s.Batches, b)
	}
	shown := e.Points[:min(len(e.Points), limit.EstimateRows-len(s.Points))]
	s.Points = append(s.Points, shown...)
	s.PointsOmitted += e.PointsOmitted + len(e.Points) - len(shown)
	s.DataPoints += e.DataPoints
	s.Bytes += e.Bytes
	s.tenths += tenths
	if e.Metered {
		n := json.Number(tenthsText(s.tenths))
		s.Credits = &n
	}
	s.Balance, s.Metered, s.TimeZone = e.Balance, e.Metered, e.TimeZone
	fits := e.Fits
	for _, left := range []*json.Number{e.Balance.Left, e.Balance.ProjectCapLeft} {
		if left == nil {
			continue
		}
		most, err := tenthsOf(left)
		if err != nil {
			return err
		}
		fits = fits && (!e.Metered || s.tenths <= most)
	}
	switch {
	case s.full:
	case fits:
		s.FitsFirst += e.DataPoints
	case s.requests == 1:
		s.FitsFirst = e.FitsFirst
	}
	s.full = s.full || !fits
	s.Fits = !s.full
	return nil
}

// tenthsOf reads a number of credits, nil as 0.
func tenthsOf(n *json.Number) (int64, error) {
	if n == nil {
		return 0, nil
	}
	whole, part, _ := strings.Cut(n.String(), ".")
	tenths, err := strconv.ParseInt(whole+cmp.Or(part, "0"), 10, 64)
	if err != nil || len(part) > 1 {
		return 0, fmt.Errorf("answer of the server has %q credits", n)
	}
	return tenths, nil
}

func tenthsText(tenths int64) string {
	return strings.TrimSuffix(fmt.Sprintf("%d.%d", tenths/10, tenths%10), ".0")
}

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
