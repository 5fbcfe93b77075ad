package node

import (
	"errors"
	"fmt"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/annals-project/annals/internal/runtest"
)

func officialClient(t testing.TB, n *Node) *esdb.Client {
	t.Helper()
	cfg, err := esdb.ParseConnectionString(n.Connection().ConnectionString())
	runtest.Must(t, err)
	cfg.Username, cfg.Password, cfg.RootCAs = n.Connection().Username, n.Connection().Password, n.Connection().RootCAs
	cfg.Logger = esdb.NoopLogging()
	c, err := esdb.NewClient(cfg)
	runtest.Must(t, err)
	closeAtEnd(t, c)
	return c
}

// The official client appends, reads, subscribes and deletes, as a service does.
func TestClient_Official(t *testing.T) {
	ctx := runtest.Context(t)
	c := officialClient(t, startNode(t, Config{}))

	var sent []string
	for i := range 3 {
		data := fmt.Sprintf(`{"n":%d}`, i)
		sent = append(sent, data)
		_, err := c.AppendToStream(ctx, "account-1", esdb.AppendToStreamOptions{ExpectedRevision: expectedRevision(i)},
			esdb.EventData{EventType: "opened", ContentType: esdb.ContentTypeJson, Data: []byte(data), Metadata: []byte(`{}`)})
		runtest.Must(t, err)
	}
	read, err := c.ReadStream(ctx, "account-1", esdb.ReadStreamOptions{}, 10)
	runtest.Must(t, err)
	var got []string
	for {
		e, err := read.Recv()
		if err != nil {
			break
		}
		got = append(got, string(e.Event.Data))
	}
	read.Close()
	same(t, "contents", sent, got)

	sub, err := c.SubscribeToAll(ctx, esdb.SubscribeToAllOptions{From: esdb.Start{}})
	runtest.Must(t, err)
	for i := range 3 {
		if e := sub.Recv().EventAppeared; e == nil || e.Event.EventNumber != uint64(i) {
			t.Fatalf("event %d: got %v", i, e)
		}
	}
	if sub.Recv().CaughtUp == nil {
		t.Fatal("no caught-up after the stored events")
	}
	if _, err := c.DeleteStream(ctx, "account-1", esdb.DeleteStreamOptions{ExpectedRevision: esdb.Revision(2)}); err != nil {
		t.Fatal(err)
	}
	if e := sub.Recv().EventAppeared; e == nil || e.Event.StreamID != "$$account-1" {
		t.Fatalf("live event: got %v", e)
	}
	runtest.Must(t, sub.Close())
	if _, err := c.TombstoneStream(ctx, "account-1", esdb.TombstoneStreamOptions{ExpectedRevision: esdb.Any{}}); err != nil {
		t.Fatal(err)
	}
	read, err = c.ReadStream(ctx, "account-1", esdb.ReadStreamOptions{}, 1)
	runtest.Must(t, err)
	_, err = read.Recv()
	var failure *esdb.Error
	if !errors.As(err, &failure) || failure.Code() != esdb.ErrorCodeStreamDeleted {
		t.Errorf("read of a tombstoned stream: %v", err)
	}
}

func expectedRevision(before int) esdb.ExpectedRevision {
	if before == 0 {
		return esdb.NoStream{}
	}
	return esdb.Revision(uint64(before - 1))
}

var subscribeFromStart = esdb.SubscribeToAllOptions{From: esdb.Start{}}
