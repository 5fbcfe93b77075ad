package client

import (
	"encoding/json"
	"time"
)

// DataPoint is one data point to send. An empty field is omitted.
type DataPoint struct {
	Content   string          `json:"content"`
	ID        string          `json:"id,omitempty"`
	Label     string          `json:"label,omitempty"`
	Timestamp string          `json:"timestamp,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Audience  string          `json:"audience,omitempty"`
	Identity  string          `json:"identity,omitempty"`
}

// Receipt is the response to a single send. Status is "queued" or "completed".
type Receipt struct {
	ProjectID   int64  `json:"projectId"`
	IngestionID string `json:"ingestionId"`
	SourceID    string `json:"sourceId"`
	Status      string `json:"status"`
	Unchanged   *bool  `json:"unchanged"`
}

// BatchReceipt is the response to a batch.
type BatchReceipt struct {
	ProjectID   int64         `json:"projectId"`
	IngestionID string        `json:"ingestionId"`
	Status      string        `json:"status"`
	Unchanged   *bool         `json:"unchanged"`
	Items       []ItemReceipt `json:"items"`
}

// ItemReceipt is the receipt of one item of a batch, in the order sent.
type ItemReceipt struct {
	Ordinal   int    `json:"ordinal"`
	SourceID  string `json:"sourceId"`
	Status    string `json:"status"`
	Unchanged *bool  `json:"unchanged"`
}

// IngestionStatus is the progress of a send. Settled, Blocked and Readiness describe the whole
// project.
type IngestionStatus struct {
	Status    string    `json:"status"`
	Settled   bool      `json:"settled"`
	Blocked   bool      `json:"blocked"`
	Readiness Readiness `json:"readiness"`
	Failure   *Failure  `json:"failure"`
}

// Readiness counts sends.
type Readiness struct {
	Raw           int `json:"raw"`
	Comprehension int `json:"comprehension"`
	Consolidation int `json:"consolidation"`
	Failed        int `json:"failed"`
}

// Failure is the reason why a send stopped.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RecallRequest is a recall query. Zero fields are omitted, so the server's defaults apply.
type RecallRequest struct {
	Query          string `json:"query"`
	Identity       string `json:"identity"`
	Limit          int    `json:"limit,omitempty"`
	Level          string `json:"level,omitempty"`
	MaxTokens      int    `json:"maxTokens,omitempty"`
	QueryTimestamp string `json:"queryTimestamp,omitempty"`
	OccurredFrom   string `json:"occurredFrom,omitempty"`
	OccurredTo     string `json:"occurredTo,omitempty"`
	Sort           string `json:"sort,omitempty"`
}

// RecallResponse is the response to a recall query.
type RecallResponse struct {
	AsOf               time.Time `json:"asOf"`
	UsedEvidenceTokens int       `json:"usedEvidenceTokens"`
	Results            []Result  `json:"results"`
}

// Result is one document of a recall response.
type Result struct {
	ID         string    `json:"id"`
	Rank       int       `json:"rank"`
	OccurredAt time.Time `json:"occurredAt"`
	Content    string    `json:"content"`
	Artifact   Artifact  `json:"artifact"`
	Sources    []Source  `json:"sources"`
}

// Artifact describes a result.
type Artifact struct {
	ID           string     `json:"id"`
	Kind         string     `json:"kind"`
	OccurredAt   time.Time  `json:"occurredAt"`
	SupersededAt *time.Time `json:"supersededAt,omitempty"`
}

// Source is the evidence of a result in one data point.
type Source struct {
	SourceID   string          `json:"sourceId"`
	OccurredAt time.Time       `json:"occurredAt"`
	Label      string          `json:"label,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Excerpts   []string        `json:"excerpts"`
}

// Tokens counts what the result uses of a budget: content and excerpts at four characters a token,
// rounded up.
func (r Result) Tokens() int {
	n := len([]rune(r.Content))
	for _, s := range r.Sources {
		for _, e := range s.Excerpts {
			n += len([]rune(e))
		}
	}
	return (n + 3) / 4
}

// DeletionReceipt is the response to a deletion by source ids.
type DeletionReceipt struct {
	OperationID string   `json:"operationId"`
	IDs         []string `json:"ids"`
}

// Project is a project as the management routes return it.
type Project struct {
	Slug        string `json:"slug"`
	Name        string `json:"name"`
	IsArchived  bool   `json:"isArchived"`
	MemoryCount int64  `json:"memoryCount"`
	// MonthIngestions is how many revisions were accepted in this month, in UTC.
	MonthIngestions int64     `json:"monthIngestions"`
	CreatedAt       time.Time `json:"createdAt"`
}

// Key is a project key; Key.Key is its clear value, returned only once.
type Key struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	KeyPrefix string    `json:"keyPrefix"`
	KeySuffix string    `json:"keySuffix"`
	CreatedAt time.Time `json:"createdAt"`
	Key       string    `json:"key"`
}

// EstimateRequest is files to be estimated. An empty field is omitted.
type EstimateRequest struct {
	Files    []EstimateFile `json:"files"`
	TimeZone string         `json:"timeZone,omitempty"`
	// Points is summary, none or full.
	Points string `json:"points,omitempty"`
}

// EstimateFile is one file of an EstimateRequest.
type EstimateFile struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Kind    string `json:"kind,omitempty"`
}

// Estimate is what files become and cost. Credits are nil without metering.
type Estimate struct {
	Files         []EstimatedFile  `json:"files"`
	DataPoints    int              `json:"dataPoints"`
	Bytes         int64            `json:"bytes"`
	Credits       *json.Number     `json:"credits"`
	Batches       []EstimatedBatch `json:"batches"`
	Points        []EstimatedPoint `json:"points"`
	PointsOmitted int              `json:"pointsOmitted"`
	Balance       EstimateBalance  `json:"balance"`
	Fits          bool             `json:"fits"`
	FitsFirst     int              `json:"fitsFirst"`
	Metered       bool             `json:"metered"`
	TimeZone      string           `json:"timeZone"`
}

// EstimatedFile is what one file becomes. Skipped is the reason why it becomes nothing.
type EstimatedFile struct {
	Path       string       `json:"path"`
	Kind       *string      `json:"kind"`
	DetectedBy *string      `json:"detectedBy"`
	Points     int          `json:"points"`
	Bytes      int64        `json:"bytes"`
	Credits    *json.Number `json:"credits"`
	Skipped    *string      `json:"skipped"`
}

// EstimatedBatch is the next Points data points of the import.
type EstimatedBatch struct {
	Index          int          `json:"index"`
	From           *time.Time   `json:"from"`
	To             *time.Time   `json:"to"`
	Points         int          `json:"points"`
	Bytes          int64        `json:"bytes"`
	Credits        *json.Number `json:"credits"`
	IdempotencyKey string       `json:"idempotencyKey"`
}

// EstimatedPoint is one data point. Content and Metadata are there only in full.
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
