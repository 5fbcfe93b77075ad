package recall_test

import (
	"context"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/eventstore"
)

// logTexts is a log that the index reads texts from.
type logTexts []eventstore.DecodedEvent

func (l logTexts) At(_ context.Context, name string, at eventstore.Revision) (eventstore.DecodedEvent, bool, error) {
	for _, f := range l {
		if f.Stream == name && f.Revision == at {
			return f, true, nil
		}
	}
	return eventstore.DecodedEvent{}, false, nil
}

func (logTexts) ReadBlob(_ context.Context, ref blob.Ref) ([]byte, error) {
	return nil, &eventstore.BlobError{Stream: ref.Stream, Missing: true}
}
