package annals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// EstimateRequest is files or data points, of which exactly one is set.
type EstimateRequest struct {
	// Files are cut into data points, at most 10,000.
	Files []EstimateFile `json:"files,omitempty"`
	// Items are batched and priced as given.
	Items []DataPoint `json:"items,omitempty"`
	// TimeZone is the IANA zone of times in files that are written without one; "" is UTC.
	TimeZone string `json:"timeZone,omitempty"`
	// Points is how much of each data point is returned: PointsSummary (the default), PointsNone or PointsFull.
	Points string `json:"points,omitempty"`
}

// How much an estimate returns of each data point.
const (
	PointsSummary = "summary"
	PointsNone    = "none"
	PointsFull    = "full"
)

// EstimateFile is one file of an EstimateRequest, as text.
type EstimateFile struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	// Kind is what the file is, such as KindEmail; "" detects it.
	Kind string `json:"kind,omitempty"`
}

// Kinds of files.
const (
	KindEmail         = "email"
	KindChat          = "chat"
	KindTranscript    = "transcript"
	KindTable         = "table"
	KindRecords       = "records"
	KindCode          = "code"
	KindDocumentation = "documentation"
	KindNotes         = "notes"
)

// Estimate is what files or data points would become and cost. Credits are nil if nothing is metered.
type Estimate struct {
	Files      []EstimatedFile `json:"files"`
	DataPoints int             `json:"dataPoints"`
	Bytes      int64           `json:"bytes"`
	Credits    *json.Number    `json:"credits"`
	// Batches follow each other in the order of Points.
	Batches []EstimatedBatch `json:"batches"`
	// Points are in the order of the import: by time, those without a time last.
	Points        []EstimatedPoint `json:"points"`
	PointsOmitted int              `json:"pointsOmitted"`
	Balance       EstimateBalance  `json:"balance"`
	// Fits is false if the import costs more than is left.
	Fits bool `json:"fits"`
	// FitsFirst counts the data points that fit, in the order of the import.
	FitsFirst int    `json:"fitsFirst"`
	Metered   bool   `json:"metered"`
	TimeZone  string `json:"timeZone"`
}

// EstimatedFile is what one file becomes.
type EstimatedFile struct {
	Path string  `json:"path"`
	Kind *string `json:"kind"`
	// DetectedBy is how the kind was decided: given, extension, content or default.
	DetectedBy *string      `json:"detectedBy"`
	Points     int          `json:"points"`
	Bytes      int64        `json:"bytes"`
	Credits    *json.Number `json:"credits"`
	// Skipped is why the file becomes nothing, else nil.
	Skipped *string `json:"skipped"`
	// Remarks are what was left out of the file or is not certain, in the order in which it was found.
	Remarks []EstimateRemark `json:"remarks"`
}

// EstimateRemark is what was left out of a file, or is not certain.
type EstimateRemark struct {
	// Code names the kind of remark, such as "no-time": data points that would get the time of the import.
	Code  string `json:"code"`
	Count int    `json:"count"`
	// First is the first place: the id of a data point, or a line; nil for none.
	First *string `json:"first"`
	// Text is the remark for people.
	Text string `json:"text"`
}

// EstimatedBatch is the next Points data points of the import, ready to be sent with its idempotency key.
type EstimatedBatch struct {
	Index          int          `json:"index"`
	From           *time.Time   `json:"from"`
	To             *time.Time   `json:"to"`
	Points         int          `json:"points"`
	Bytes          int64        `json:"bytes"`
	Credits        *json.Number `json:"credits"`
	IdempotencyKey string       `json:"idempotencyKey"`
}

// EstimatedPoint is one data point. Content and Metadata are set with PointsFull only.
type EstimatedPoint struct {
	ID        string          `json:"id"`
	Kind      *string         `json:"kind"`
	Path      *string         `json:"path"`
	Label     *string         `json:"label"`
	Timestamp *time.Time      `json:"timestamp"`
	Identity  *string         `json:"identity"`
	Audience  *string         `json:"audience"`
	Bytes     int             `json:"bytes"`
	Credits   *json.Number    `json:"credits"`
	Preview   string          `json:"preview"`
	Content   *string         `json:"content,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

// EstimateBalance is what is left of credits and caps.
type EstimateBalance struct {
	Left                *json.Number `json:"left"`
	ResetsAt            *time.Time   `json:"resetsAt"`
	ProjectCapLeft      *json.Number `json:"projectCapLeft"`
	IngestionCapReached bool         `json:"ingestionCapReached"`
}

// Estimate returns what files or data points would become and cost. It writes nothing and spends nothing.
func (c *Client) Estimate(ctx context.Context, r EstimateRequest) (*Estimate, error) {
	return send[Estimate](ctx, c, call{method: http.MethodPost, path: path("ingest", "estimate"), in: r, repeat: safe})
}

// EstimateFull is Estimate with PointsFull for more data points than memory holds: it passes each to point as it
// arrives, in the order of the import. It calls begin before the first one, and again if the call is repeated. An error
// of either ends the call. The Points of the result are empty.
func (c *Client) EstimateFull(
	ctx context.Context, r EstimateRequest, begin func() error, point func(EstimatedPoint) error,
) (*Estimate, error) {
	r.Points = PointsFull
	out := new(Estimate)
	_, err := c.do(ctx, call{
		method: http.MethodPost, path: path("ingest", "estimate"), in: r, repeat: safe, begin: begin,
		read: func(body io.Reader) (err error) {
			*out, err = readEstimate(json.NewDecoder(&bounded{body, maxStream}), point)
			return readError(err)
		},
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// readError returns the error of reading JSON from a stream, as final unless the stream broke off.
func readError(err error) error {
	var (
		syntax *json.SyntaxError
		shape  *json.UnmarshalTypeError
	)
	if errors.As(err, &syntax) || errors.As(err, &shape) {
		return final{fmt.Errorf("read the answer of the server: %w", err)}
	}
	return err
}

// readEstimate reads an estimate and passes on its data points.
func readEstimate(dec *json.Decoder, point func(EstimatedPoint) error) (out Estimate, err error) {
	if err := delimiter(dec, '{'); err != nil {
		return out, err
	}
	rest := map[string]json.RawMessage{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return out, err
		}
		if name == "points" {
			err = readPoints(dec, point)
		} else {
			var value json.RawMessage
			err = dec.Decode(&value)
			rest[fmt.Sprint(name)] = value
		}
		if err != nil {
			return out, err
		}
	}
	if err := delimiter(dec, '}'); err != nil {
		return out, err
	}
	text, err := json.Marshal(rest)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}

func readPoints(dec *json.Decoder, point func(EstimatedPoint) error) error {
	if err := delimiter(dec, '['); err != nil {
		return err
	}
	for dec.More() {
		var p EstimatedPoint
		if err := dec.Decode(&p); err != nil {
			return err
		}
		if err := point(p); err != nil {
			return final{err}
		}
	}
	return delimiter(dec, ']')
}

// delimiter reads one brace or bracket.
func delimiter(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err == nil && got != want {
		err = final{fmt.Errorf("read the answer of the server: %v in place of %v", got, want)}
	}
	return err
}
