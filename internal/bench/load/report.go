package load

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// Row is one measured value, with the budget of the design.
type Row struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Must is the bound, 0 without one. With AtLeast the value must not be below it, else not above.
	Must    float64 `json:"must,omitempty"`
	AtLeast bool    `json:"atLeast,omitempty"`
	Aim     float64 `json:"aim,omitempty"`
	// Bare is the value of the part alone in the same run, and BareOf names that part; 0 is unknown.
	Bare   float64 `json:"bare,omitempty"`
	BareOf string  `json:"bareOf,omitempty"`
}

// Met reports whether the value meets the bound.
func (r Row) Met() bool {
	switch {
	case r.Must == 0:
		return true
	case r.AtLeast:
		return r.Value >= r.Must
	default:
		return r.Value < r.Must
	}
}

// Ratio returns the value as a multiple of Bare; 0 is unknown.
func (r Row) Ratio() float64 {
	if r.Bare == 0 {
		return 0
	}
	return r.Value / r.Bare
}

// Table writes rows for people.
func Table(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "WHAT\tMEASURED\tMUST\tAIM\tRATIO\t") // Flush returns the error
	for _, r := range rows {
		must, aim, ratio, mark := "", "", "", ""
		if r.Must != 0 {
			must = side(r) + number(r.Must)
			if !r.Met() {
				mark = "missed"
			}
		}
		if r.Aim != 0 {
			aim = side(r) + number(r.Aim)
		}
		if x := r.Ratio(); x != 0 {
			ratio = fmt.Sprintf("%.2f x %s (%s)", x, r.BareOf, number(r.Bare))
		}
		_, _ = fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\t%s\n", r.What, number(r.Value), r.Unit, must, aim, ratio, mark)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func side(r Row) string {
	if r.AtLeast {
		return ">= "
	}
	return "< "
}

func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// Missed returns an error that names the rows that miss their bound, nil if none does.
func Missed(rows []Row) error {
	var errs []error
	for _, r := range rows {
		if !r.Met() {
			errs = append(errs, fmt.Errorf("%s is %.1f %s", r.What, r.Value, r.Unit))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bounds are missed: %w", err)
	}
	return nil
}
