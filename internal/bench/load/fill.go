// Package load measures a running server under load, over its public API, within bounds of count and time.
package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	domainmemory "github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// Fill writes single sends and their derived memories to the log, as fast as the event store
// accepts them: a million texts would take an hour through the API. The service itself records
// that they are searchable, once it runs. No service may run on the log during a Fill.
type Fill struct {
	Store eventstore.Store
	Codec *eventstore.Codec
	// Project and Namespace are those of the project of the texts.
	Project, Namespace uuid.UUID
	// Words is the length of each text, Callers how many append at once.
	Words, Callers int
}

// fillChunk is how many texts a caller makes from one seed.
const fillChunk = 1000

// Run writes the texts from and up to, exclusive. Each occurred a minute after the one before, as
// in Batches.
func (f Fill) Run(ctx context.Context, from, to int) error {
	var next atomic.Int64
	next.Store(int64(from))
	group, ctx := errgroup.WithContext(ctx)
	for range f.Callers {
		group.Go(func() error {
			for {
				start := int(next.Add(fillChunk)) - fillChunk
				if start >= to {
					return nil
				}
				texts := NewTexts(uint64(start) + 50_000)
				for n := start; n < min(start+fillChunk, to); n++ {
					if err := f.send(ctx, n, texts.Text(f.Words)); err != nil {
						return fmt.Errorf("text %d: %w", n, err)
					}
				}
			}
		})
	}
	return group.Wait()
}

// send writes one send and its derivation.
func (f Fill) send(ctx context.Context, n int, text string) error {
	source := fmt.Sprintf("fill/%d", n)
	id, now, occurred := stream.DataPointID(f.Namespace, source), time.Now().UTC().Truncate(time.Microsecond), epoch.Add(
		time.Duration(n)*time.Minute,
	)
	send := datapoint.Send{
		ProjectID: f.Project, IngestionID: uuid.New(), Items: 1, AcceptedAt: now, RequestID: uuid.New(),
		Bytes: int64(len(text)), CreditTenths: 10, Month: now.Format("2006-01"),
	}
	ingest := datapoint.Ingest{
		Send: send, Author: identity, SourceID: source, ContentDigest: datapoint.Digest([]byte(text)),
		Content: datapoint.Text{Inline: text}, OccurredAt: &occurred,
	}
	accepted := datapoint.Base{}.Decide(ingest).Event(ingest, nil)
	derived := domainmemory.Derived{
		ProjectID: f.Project, IngestionID: send.IngestionID, Revision: 1, Extractor: comprehend.Extractor,
		DerivedAt: now, OccurredAt: occurred,
		Memories: comprehend.Extract(
			comprehend.Input{DataPoint: id, Revision: 1, Content: text, Author: identity, OccurredAt: occurred},
		),
	}
	for _, a := range []struct {
		stream string
		events []event.Event
	}{
		{stream.Name(stream.DataPoint, id), []event.Event{accepted}},
		{stream.Name(stream.Memory, id), []event.Event{derived}},
	} {
		proposed, err := f.Codec.EncodeAll(a.events,
			event.NewMeta("bench", now).Of(send.IngestionID))
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		if _, err := eventstore.AppendUntilKnown(ctx, f.Store, a.stream, eventstore.NoStream, proposed); err != nil {
			return fmt.Errorf("append to %s: %w", a.stream, err)
		}
	}
	return nil
}

// Import sends batches in a closed loop: each client sends its next batch once the previous one is
// answered. A refused batch is not repeated.
type Import struct {
	// To makes each call once.
	To                     *client.Client
	Batches, Size, Clients int
	Run                    string
}

// Imported is the result of an Import.
type Imported struct {
	// Accepted and Refused count batches.
	Accepted, Refused int
	// Lasted is the time until the last answer.
	Lasted time.Duration
	// Times are those of the accepted batches, Sent their ids.
	Times Times
	Sent  []string
}

// Start sends the batches. An error other than a temporary refusal ends it.
func (i Import) Start(ctx context.Context) (Imported, error) {
	var (
		mu   sync.Mutex
		out  Imported
		next atomic.Int64
	)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for c := range i.Clients {
		group.Go(func() error {
			texts := NewTexts(uint64(c) + 20_000)
			for n := int(next.Add(1)) - 1; n < i.Batches; n = int(next.Add(1)) - 1 {
				items := batch(texts, n, i.Size, shortWords, i.Run)
				start := time.Now()
				receipt, err := i.To.IngestBatch(ctx, client.Batch{Items: items})
				took := time.Since(start)
				_, refused := refusedForNow(err)
				if err != nil && !refused {
					return fmt.Errorf("import: %w", err)
				}
				mu.Lock()
				if refused {
					out.Refused++
				} else {
					out.Accepted++
					out.Times, out.Sent = append(out.Times, took), append(out.Sent, receipt.IngestionID)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	err := group.Wait()
	out.Lasted = time.Since(began)
	return out, err
}

// AwaitCompleted waits until each of the sends is shown as completed.
func AwaitCompleted(ctx context.Context, to *client.Client, sent []string) error {
	for _, id := range sent {
		if _, err := ended(ctx, to, id, time.Now()); err != nil {
			return fmt.Errorf("send %s: %w", id, err)
		}
	}
	return nil
}

// Texts generates texts whose words are as unevenly distributed as those of a language. Equal
// seeds generate equal texts. It is for one goroutine.
type Texts struct {
	words []string
	zipf  *rand.Zipf
	rand  *rand.Rand
}

// vocabulary is how many different words there are.
const vocabulary = 20_000

// words is the vocabulary. It is the same for every seed, so that a query from one seed finds texts
// of another.
var words = sync.OnceValue(func() []string {
	r := rand.New(rand.NewPCG(1, 1))
	const consonants, vowels = "bcdfghklmnprstvz", "aeiou"
	seen := map[string]bool{}
	list := make([]string, 0, vocabulary)
	for len(list) < vocabulary {
		var w strings.Builder
		for range 2 + r.IntN(3) {
			w.WriteByte(consonants[r.IntN(len(consonants))])
			w.WriteByte(vowels[r.IntN(len(vowels))])
		}
		if !seen[w.String()] {
			seen[w.String()] = true
			list = append(list, w.String())
		}
	}
	return list
})

// NewTexts begins a sequence of texts.
func NewTexts(seed uint64) *Texts {
	t := &Texts{words: words(), rand: rand.New(rand.NewPCG(seed, 2))}
	t.zipf = rand.NewZipf(t.rand, 1.07, 4, vocabulary-1)
	return t
}

// Text returns words as one sentence.
func (t *Texts) Text(words int) string {
	var b strings.Builder
	for i := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.words[t.zipf.Uint64()])
	}
	b.WriteByte('.')
	return b.String()
}

// commonest is how many of the words are as common as stop words. No query is about them.
const commonest = 100

// Query returns a question of three to six words, common and rare ones.
func (t *Texts) Query() string {
	words := make([]string, 3+t.rand.IntN(4))
	for i := range words {
		rank := t.zipf.Uint64()
		for rank < commonest {
			rank = t.zipf.Uint64()
		}
		words[i] = t.words[rank]
	}
	return strings.Join(words, " ")
}

// Words returns different words of some ranks, from the commonest on, each as often as texts have it.
func (t *Texts) Words(count, from, to int) []string {
	taken, list := map[int]bool{}, make([]string, 0, count)
	for len(list) < count {
		rank := int(t.zipf.Uint64())
		if rank < from || rank >= to || taken[rank] {
			continue
		}
		taken[rank] = true
		list = append(list, t.words[rank])
	}
	return list
}

// Rare returns a word that no text contains.
func (t *Texts) Rare() string {
	return fmt.Sprintf("xq%016x", t.rand.Uint64())
}
