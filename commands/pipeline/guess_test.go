package pipeline

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// What was erased cannot be guessed from a copy of the log without the hash key: neither an
// e-mail address, nor a content whose hash is its id, nor an idempotency key, nor the text of a
// stage. With the hash key the ids can be guessed, which shows that the guesses are made well.
func TestErasedText_GuessedFromTheLog(t *testing.T) {
	t.Parallel()
	w := newIdleNodeHarness(t)
	guesses, stages := w.sendAndErase()
	copied := w.copyOfLog()
	for what, text := range guesses {
		if confirmed := confirm(copied, text, stream.NewNamespaces([]byte("a guess of the hash key, 32 byte"))); len(confirmed) > 0 {
			t.Errorf("%s is confirmed by %v", what, confirmed)
		}
		if len(confirm(copied, text, w.log.Namespaces)) == 0 {
			t.Errorf("%s is not confirmed with the hash key, so the guess is made badly", what)
		}
	}
	for what, text := range stages {
		for _, digest := range digests(text) {
			if strings.Contains(copied, digest) {
				t.Errorf("%s is confirmed by %s", what, digest)
			}
		}
	}
}

// sendAndErase sends texts in every way, and erases them. It returns what a stranger may guess:
// texts, and whole stages.
func (w *harness) sendAndErase() (guesses, stages map[string]string) {
	w.t.Helper()
	must := func(err error) {
		w.t.Helper()
		runtest.Must(w.t, err)
	}
	ctx, mail := w.t.Context(), "ana.ruiz@example.org"
	single, batch, big := "The salary of Ana is 51,000.", "The salary of Bo is 48,000.",
		strings.Repeat("The salary of Cy is 47,000.\n", 12_000)
	guesses = map[string]string{
		"an e-mail address": mail, "a content": single, "a content in a batch": batch, "a big content": big,
		"an idempotency key": "import-1", "the idempotency key of a batch": "import-2", "a source id": "payroll/ana",
	}
	id := "payroll/ana"
	for _, in := range []struct {
		p   ingest.DataPoint
		key string
	}{
		{ingest.DataPoint{Content: single, Identity: &mail}, "import-1"},
		{ingest.DataPoint{Content: big}, ""},
		{ingest.DataPoint{Content: "x", ID: &id}, ""},
	} {
		w.ok(w.write.Ingest(ctx, w.call, in.p, in.key))
	}
	w.ok(w.write.IngestBatch(ctx, w.call, []ingest.DataPoint{{Content: batch}}, "import-2"))
	w.ok(w.write.PutAudience(ctx, w.call,
		identities.AudiencePut{Slug: "payroll", Kind: audience.KindFixed, Identities: []string{mail}}))
	row := identity.Row{Identity: mail, Traits: map[string]string{"city": "Lisbon"}}
	w.ok(w.write.BulkIdentities(ctx, w.call, []identity.Row{row}))
	project := w.call.Principal.Project
	_, err := w.log.Append(ctx, stream.UsageName(project.ID, "2026-11"), eventstore.NoStream,
		event.NewMeta("test", time.Now()),
		metering.Charged{
			ProjectID: project.ID, FlushID: uuid.New(), Month: "2026-11",
			Seen: []metering.Seen{{IdentityID: stream.IdentityID(project.Namespace, mail), At: at}}, At: at,
		})
	must(err)
	w.passHead()

	// A stranger guesses the whole stage without what is random in it.
	line := func(v any) string {
		text, err := json.Marshal(v)
		must(err)
		return string(text) + "\n"
	}
	digest := sha256.Sum256([]byte(batch))
	stages = map[string]string{
		"the stage of a batch":      `{"sourceId":"` + hex.EncodeToString(digest[:]) + `","content":"` + batch + `"}` + "\n",
		"the stage of a bulk write": line(row),
	}
	ids := []string{id}
	for _, content := range []string{single, batch, big} {
		sum := sha256.Sum256([]byte(content))
		ids = append(ids, hex.EncodeToString(sum[:]))
	}
	w.ok(w.write.DeleteDataPoints(ctx, w.call, ids))
	must(w.write.DeleteIdentity(ctx, w.call, mail))
	w.passHead()
	done, err := w.finisher.EraseNow(ctx)
	must(err)
	if left, err := w.finisher.Pending(ctx); err != nil || left.Deletions+left.Identities > 0 {
		w.t.Fatalf("erased %+v, left %+v, %v", done, left, err)
	}
	return guesses, stages
}

// copyOfLog is all that the log holds, as text: names, types, payloads and metadata of all events.
func (w *harness) copyOfLog() string {
	w.t.Helper()
	var b bytes.Buffer
	for _, r := range eventstoretest.All(w.t, w.store, 0) {
		for _, part := range [][]byte{[]byte(r.Stream), []byte(r.Type), []byte(r.ID.String()), r.Data, r.Meta} {
			b.Write(part)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

var uuidInText = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// confirm is what in a copy of the log confirms a text: the text itself, a hash of it, or an id
// that is derived from it in a namespace that is in the copy too, or that derives from one of these by a hash key.
func confirm(copied, text string, namespaces stream.Namespaces) (confirmed []string) {
	texts := append(digests(text), text)
	for _, text := range texts {
		if strings.Contains(copied, text) {
			confirmed = append(confirmed, text)
		}
	}
	known := uuidInText.FindAllString(copied, -1)
	slices.Sort(known)
	known = append(slices.Compact(known), uuid.Nil.String(), uuid.NameSpaceURL.String(), uuid.NameSpaceOID.String(),
		uuid.NameSpaceDNS.String())
	for _, namespace := range known {
		keyed, err := namespaces.Of(uuid.MustParse(namespace))
		if err != nil {
			panic(err)
		}
		for _, in := range []uuid.UUID{uuid.MustParse(namespace), keyed} {
			for _, prefix := range []string{"", "datapoint:", "identity:", "ingestion:", "memory:", "blob:"} {
				for _, text := range texts {
					if id := uuid.NewSHA1(in, []byte(prefix+text)).String(); strings.Contains(copied, id) {
						confirmed = append(confirmed, prefix+" in "+namespace)
					}
				}
			}
		}
	}
	return confirmed
}

// digests are the hashes of a text that need no key.
func digests(text string) []string {
	plain := sha256.Sum256([]byte(text))
	mac := hmac.New(sha256.New, nil)
	mac.Write([]byte(text))
	return []string{hex.EncodeToString(plain[:]), hex.EncodeToString(mac.Sum(nil))}
}
