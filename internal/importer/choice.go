package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/metering"
)

// Choice is which data points of files are imported. The zero value chooses all.
type Choice struct {
	// Since leaves out what is before it, and what has no time; the zero time leaves out nothing.
	Since time.Time
	// Kinds are the kinds of files whose data points are chosen, all if there is none.
	Kinds []string
}

func (c Choice) isAll() bool { return c.Since.IsZero() && len(c.Kinds) == 0 }

func (c Choice) takes(p client.EstimatedPoint) bool {
	if len(c.Kinds) > 0 && (p.Kind == nil || !slices.Contains(c.Kinds, *p.Kind)) {
		return false
	}
	return c.Since.IsZero() || p.Timestamp != nil && !p.Timestamp.Before(c.Since)
}

// chosen is the data points of an estimate that were chosen.
type chosen struct {
	choice Choice
	plan   *estimate.Plan
	files  map[string]*chosenFile
}

type chosenFile struct {
	points, left  int
	bytes, tenths int64
	// untimed counts the chosen ones without a time.
	untimed int
}

func (c Choice) begin() *chosen {
	return &chosen{c, estimate.NewPlan(time.UTC, 0), map[string]*chosenFile{}}
}

// add reports whether a data point is chosen, and counts it.
func (c *chosen) add(p client.EstimatedPoint) (bool, error) {
	path := ""
	if p.Path != nil {
		path = *p.Path
	}
	f := c.files[path]
	if f == nil {
		f = &chosenFile{}
		c.files[path] = f
	}
	if !c.choice.takes(p) {
		f.left++
		return false, nil
	}
	f.points++
	f.bytes += int64(p.Bytes)
	f.tenths += metering.IngestTenths(int64(p.Bytes))
	point := estimate.Point{ID: p.ID, Metadata: p.Metadata}
	for to, from := range map[*string]*string{
		&point.Content: p.Content, &point.Label: p.Label, &point.Identity: p.Identity, &point.Audience: p.Audience,
	} {
		if from != nil {
			*to = *from
		}
	}
	if p.Timestamp == nil {
		f.untimed++
	} else {
		point.At = *p.Timestamp
	}
	return true, c.plan.AddItem(point)
}

// apply makes an estimate that of the chosen data points: in batches of their own, with their cost.
func (c *chosen) apply(ctx context.Context, e *client.Estimate) error {
	var room estimate.Room
	for _, left := range []*json.Number{e.Balance.Left, e.Balance.ProjectCapLeft} {
		if left == nil {
			continue
		}
		credits, err := left.Float64()
		if err != nil {
			return fmt.Errorf("read the balance: %w", err)
		}
		if tenths := int64(math.Round(10 * credits)); room.CreditTenths == nil || tenths < *room.CreditTenths {
			room.CreditTenths = &tenths
		}
	}
	made, err := c.plan.Estimate(ctx, room)
	if err != nil {
		return err
	}
	credits := func(tenths int64) *json.Number {
		if !e.Metered {
			return nil
		}
		n := json.Number(strings.TrimSuffix(fmt.Sprintf("%d.%d", tenths/10, tenths%10), ".0"))
		return &n
	}
	e.DataPoints, e.Bytes, e.Credits = made.Points, made.Bytes, credits(made.CreditTenths)
	e.Fits, e.FitsFirst, e.Batches = made.Fits() && !e.Balance.IngestionCapReached, made.FitsFirst, nil
	for b := range made.Batches() {
		batch := client.EstimatedBatch{
			Index: len(e.Batches), Points: b.Points, Bytes: b.Bytes, Credits: credits(b.CreditTenths),
			IdempotencyKey: b.IdempotencyKey,
		}
		if !b.From.IsZero() {
			batch.From, batch.To = &b.From, &b.To
		}
		e.Batches = append(e.Batches, batch)
	}
	for i := range e.Files {
		c.applyTo(&e.Files[i], credits)
	}
	return nil
}

// applyTo makes the row of a file that of its chosen data points.
func (c *chosen) applyTo(row *client.EstimatedFile, credits func(int64) *json.Number) {
	f := c.files[row.Path]
	if row.Skipped != nil || f == nil {
		return
	}
	delete(c.files, row.Path) // of several files with one path, the first has all
	row.Points, row.Bytes, row.Credits = f.points, f.bytes, credits(f.tenths)
	row.Remarks = slices.DeleteFunc(row.Remarks, func(r client.EstimateRemark) bool {
		return r.Code == string(estimate.NoTime) && f.untimed == 0
	})
	for i := range row.Remarks {
		if r := &row.Remarks[i]; r.Code == string(estimate.NoTime) {
			r.Count = f.untimed
		}
	}
	if f.left > 0 {
		row.Remarks = append(row.Remarks, client.EstimateRemark{
			Code: "not-chosen", Count: f.left,
			Text: fmt.Sprintf("%d of %d data points are not among those that were asked for", f.left, f.left+f.points),
		})
	}
}
