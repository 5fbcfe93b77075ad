package datapoints

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/metering"
)

// cost is what would be sent, and what it costs.
type cost struct {
	Points  int        `json:"dataPoints"`
	Bytes   int64      `json:"bytes"`
	Metered bool       `json:"metered"`
	Tenths  int64      `json:"creditTenths"`
	Left    *int64     `json:"leftTenths"`
	Fits    bool       `json:"fits"`
	Files   []fileCost `json:"files,omitempty"`
	// NoTime counts the data points without a time: they would get that of the import.
	NoTime int `json:"withoutTime,omitempty"`
}

type fileCost struct {
	Path    string `json:"path"`
	Kind    string `json:"kind"`
	Points  int    `json:"dataPoints"`
	Bytes   int64  `json:"bytes"`
	Skipped string `json:"skipped,omitempty"`
	// Remarks are what was left out of the file.
	Remarks []string `json:"remarks,omitempty"`
}

// priced completes a cost by what the project may still ingest.
func (p *pages) priced(r *web.Request, c cost) (cost, error) {
	room, err := p.Rooms.Room(r.Context(), r.Command().Principal, r.Now())
	if err != nil {
		return c, err
	}
	c.Metered, c.Left = room.Metered, room.LeftTenths
	c.Fits = (room.CreditTenths == nil || c.Tenths <= *room.CreditTenths) &&
		(room.Points == nil || int64(c.Points) <= *room.Points)
	return c, nil
}

// ingestPage is one text in the form, with its cost once that is known.
type ingestPage struct {
	form
	Cost *cost `json:"cost,omitempty"`
	// Confirm is what was estimated: only that is sent.
	Confirm string `json:"-"`
	// Key makes a form that is sent twice one send.
	Key string `json:"-"`
}

func (p *pages) ingestForm(r *web.Request) error {
	return r.Render("ingest.html", ingestPage{})
}

// ingest shows what the text would cost, and sends it once the person has seen that.
func (p *pages) ingest(r *web.Request) error {
	page := ingestPage{form: formOf(r), Key: r.Field("key")}
	in, err := page.point()
	if err != nil {
		return r.Invalid(err, "ingest.html", page)
	}
	text, err := json.Marshal(page.form)
	if err != nil {
		return err
	}
	page.Confirm = datapoint.Digest(text)
	if r.Field("confirm") != page.Confirm {
		size := int64(len(in.Content))
		c, err := p.priced(r, cost{Points: 1, Bytes: size, Tenths: metering.IngestTenths(size)})
		if err != nil {
			return err
		}
		page.Cost, page.Key = &c, uuid.NewString()
		return r.Form(nil, "ingest.html", page)
	}
	receipt, err := p.Commands.Ingest(r.Context(), r.Command(), in, "console-"+page.Key)
	if err != nil {
		return r.Invalid(err, "ingest.html", page)
	}
	return r.Done(r.ProjectPath("sends", receipt.IngestionID.String()), "sent")
}
