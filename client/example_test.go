package annals_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	annals "github.com/annals-project/annals/client"
)

// service answers as a service does, so that the examples run without one.
func service() *httptest.Server {
	answers := map[string]string{
		"POST /api/v1/ingest": `{"projectId":1,"ingestionId":"send-1","sourceId":"call-1","status":"queued","unchanged":null}`,
		"POST /api/v1/ingest/batch": `{"projectId":1,"ingestionId":"send-2","status":"queued","unchanged":null,"items":[` +
			`{"ordinal":0,"sourceId":"note-1","status":"queued","unchanged":null},` +
			`{"ordinal":1,"sourceId":"note-2","status":"queued","unchanged":null}]}`,
		"GET /api/v1/ingest/send-1": `{"status":"completed","settled":true}`,
		"POST /api/v1/recall": `{"results":[{"rank":1,"content":"The launch is on 3 June 2025.","sources":[` +
			`{"sourceId":"call-1","label":"Planning call","excerpts":["Ana moved the launch to 3 June 2025."]}]}]}`,
		"GET /api/v1/identities": `{"identities":[{"identity":"ana","traits":{"team":"finance"}},` +
			`{"identity":"bo","traits":{"team":"finance"}}],"hasMore":false,"endCursor":null}`,
		"PUT /api/v1/audiences/finance": `{"slug":"finance","memberCount":2}`,
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer, ok := answers[r.Method+" "+r.URL.Path]; ok {
			_, _ = io.WriteString(w, answer)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"not-found","status":404,"debugMessage":"no send has this id","data":{}}`)
	}))
}

// Send a text, wait until it is processed, and recall it with its proof.
func Example() {
	server := service()
	defer server.Close()
	ctx := context.Background()

	client, err := annals.New(server.URL, "svc_sk_key")
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := client.Ingest(ctx, annals.DataPoint{
		ID: "call-1", Label: "Planning call", Content: "Ana moved the launch to 3 June 2025.", Identity: "ana",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.WaitIngestion(ctx, receipt.IngestionID); err != nil {
		fmt.Println(err)
		return
	}
	response, err := client.Recall(ctx, annals.RecallRequest{Query: "When is the launch?", Identity: "ana"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, result := range response.Results {
		fmt.Printf("%d. %s\n", result.Rank, result.Content)
		for _, source := range result.Sources {
			fmt.Printf("   from %s: %q\n", source.Label, source.Excerpts)
		}
	}
	// Output:
	// 1. The launch is on 3 June 2025.
	//    from Planning call: ["Ana moved the launch to 3 June 2025."]
}

func ExampleClient_IngestBatch() {
	server := service()
	defer server.Close()
	client, err := annals.New(server.URL, "svc_sk_key")
	if err != nil {
		fmt.Println(err)
		return
	}
	receipt, err := client.IngestBatch(context.Background(), annals.Batch{Items: []annals.DataPoint{
		{ID: "note-1", Content: "The printer is out of toner."},
		{ID: "note-2", Content: "The merger price is 3 million.", Audience: "finance"},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, item := range receipt.Items {
		fmt.Println(item.Ordinal, item.SourceID, item.Status)
	}
	// Output:
	// 0 note-1 queued
	// 1 note-2 queued
}

// A list reads page after page. An error is its last element.
func ExampleClient_Identities() {
	server := service()
	defer server.Close()
	client, err := annals.New(server.URL, "svc_sk_key")
	if err != nil {
		fmt.Println(err)
		return
	}
	request := annals.ListIdentitiesRequest{TraitKey: "team", TraitValue: "finance"}
	for identity, err := range client.Identities(context.Background(), request) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(identity.Identity)
	}
	// Output:
	// ana
	// bo
}

func ExampleClient_PutAudience() {
	server := service()
	defer server.Close()
	client, err := annals.New(server.URL, "svc_sk_key")
	if err != nil {
		fmt.Println(err)
		return
	}
	audience, err := client.PutAudience(context.Background(), annals.AudiencePut{
		Slug: "finance", Kind: annals.AudienceRule,
		Rule: &annals.Rule{Match: annals.MatchAll, Conditions: []annals.Condition{
			{Trait: "team", Operator: annals.OperatorIs, Values: []string{"finance"}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(audience.Slug, audience.MemberCount)
	// Output: finance 2
}

func ExampleAPIError() {
	server := service()
	defer server.Close()
	client, err := annals.New(server.URL, "svc_sk_key")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.GetIngestion(context.Background(), "another")
	var refused *annals.APIError
	if errors.As(err, &refused) && refused.Code == annals.CodeNotFound {
		fmt.Println(refused.Status, refused.Message)
	}
	// Output: 404 no send has this id
}
