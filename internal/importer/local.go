package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/fields"
)

// Local sends within the service: it calls the command that the API calls.
type Local func(ctx context.Context, items []fields.DataPoint, key string) (LocalReceipt, error)

// LocalReceipt is the receipt of a batch.
type LocalReceipt struct {
	ProjectID   int64
	IngestionID string
	// Unchanged is by item.
	Unchanged []bool
}

// IngestBatch implements Sender. It reads the items as the API does; a fault becomes what a client would get.
func (l Local) IngestBatch(ctx context.Context, b client.Batch) (*client.BatchReceipt, error) {
	items := make([]fields.DataPoint, len(b.RawItems))
	for i, raw := range b.RawItems {
		var err error
		at := fmt.Sprintf("items[%d]", i)
		if items[i], err = fields.Decode(raw, at, fields.DataPointNames, fields.DataPointOf); err != nil {
			return nil, refusal(err)
		}
	}
	sent, err := l(ctx, items, b.IdempotencyKey)
	if err != nil {
		return nil, refusal(err)
	}
	receipt := &client.BatchReceipt{ProjectID: sent.ProjectID, IngestionID: sent.IngestionID}
	for i := range sent.Unchanged {
		receipt.Items = append(receipt.Items, client.ItemReceipt{Ordinal: i, Unchanged: &sent.Unchanged[i]})
	}
	return receipt, nil
}

func refusal(err error) error {
	f, is := errors.AsType[*fault.Error](err)
	if !is || f.Kind == fault.Unavailable {
		return err
	}
	data, err := json.Marshal(f.Data)
	if err != nil {
		return err
	}
	return &client.APIError{Code: f.Code, Message: f.Msg, Data: data}
}

// Refused returns what is wrong with an input, for people, if that is why a run ended: another run ends the same way.
func Refused(err error) (reason string, ok bool) {
	if line, is := errors.AsType[*LineError](err); is {
		return line.Error(), true
	}
	if refused, is := errors.AsType[*client.APIError](err); is {
		lines := strings.TrimSuffix(err.Error(), refused.Error())
		return fmt.Sprintf("%s%s (%s)", lines, refused.Message, refused.Code), true
	}
	return "", false
}
