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

// Receipt answers a single send. Status is "queued" or "completed".
type Receipt struct {
	ProjectID   int64  `json:"projectId"`
	IngestionID string `json:"ingestionId"`
	SourceID    string `json:"sourceId"`
	Status      string `json:"status"`
	Unchanged   *bool  `json:"unchanged"`
}

// BatchReceipt answers a batch.
type BatchReceipt struct {
	ProjectID   int64         `json:"projectId"`
	IngestionID string        `json:"ingestionId"`
	Status      string        `json:"status"`
	Unchanged   *bool         `json:"unchanged"`
	Items       []ItemReceipt `json:"items"`
}

// ItemReceipt answers one item of a batch, in the order sent.
type ItemReceipt struct {
	Ordinal   int    `json:"ordinal"`
	SourceID  string `json:"sourceId"`
	Status    string `json:"status"`
	Unchanged *bool  `json:"unchanged"`
}

// IngestionStatus is the progress of a send. Settled, Blocked and Readiness concern the whole project.
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

// Failure is why a send stopped.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// RecallRequest is a question. Zero fields are omitted, and the server's defaults hold.
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

// RecallResponse is an answer.
type RecallResponse struct {
	AsOf               time.Time `json:"asOf"`
	UsedEvidenceTokens int       `json:"usedEvidenceTokens"`
	Results            []Result  `json:"results"`
}

// Result is one document of an answer.
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

// Source is the evidence of a result from one data point.
type Source struct {
	SourceID   string          `json:"sourceId"`
	OccurredAt time.Time       `json:"occurredAt"`
	Label      string          `json:"label,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Excerpts   []string        `json:"excerpts"`
}

// Tokens counts what the result takes of a budget: content and excerpts at four characters a token, rounded up.
func (r Result) Tokens() int {
	n := len([]rune(r.Content))
	for _, s := range r.Sources {
		for _, e := range s.Excerpts {
			n += len([]rune(e))
		}
	}
	return (n + 3) / 4
}

// DeletionReceipt answers a deletion by source ids.
type DeletionReceipt struct {
	OperationID string   `json:"operationId"`
	IDs         []string `json:"ids"`
}

// Project is a project as the management routes show it.
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
