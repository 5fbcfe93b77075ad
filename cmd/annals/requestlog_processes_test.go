package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
)

// send calls the API with the project key of the first process, and returns the answer.
func (s *served) send(method, path, body string) (status int, header http.Header, answer string) {
	s.d.t.Helper()
	values, err := datafolder.ReadCredentials(s.d.processes[0].dir)
	if err != nil {
		s.d.t.Error(err)
		return 0, nil, ""
	}
	req, err := http.NewRequestWithContext(s.d.t.Context(), method, "http://"+s.addr+api+path, strings.NewReader(body))
	if err != nil {
		s.d.t.Error(err)
		return 0, nil, ""
	}
	req.Header.Set("Authorization", "Bearer "+values[datafolder.ProjectKeyName])
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.d.t.Errorf("%s %s: %v", method, path, err)
		return 0, nil, ""
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.d.t.Errorf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, res.Header, string(text)
}

// sendMany makes so many sends at once and returns their request ids.
func (s *served) sendMany(run string, count int) []string {
	s.d.t.Helper()
	ids := make([]string, count)
	var all sync.WaitGroup
	for n := range ids {
		all.Go(func() {
			body := fmt.Sprintf(`{"id":"%s %d","content":"Note %d of %[1]s."}`, run, n, n)
			status, header, answer := s.send("POST", "/ingest", body)
			for strings.Contains(answer, "the key could not be looked up; send the request again") { // so slow a machine
				status, header, answer = s.send("POST", "/ingest", body)
			}
			if ids[n] = header.Get("X-Request-Id"); status/100 != 2 || ids[n] == "" {
				s.d.t.Errorf("send %d of %s: %d %s", n, run, status, answer)
			}
		})
	}
	all.Wait()
	return ids
}

// logged returns how many sends the request log holds, as this process reads it.
func (s *served) logged() (count int) {
	s.d.t.Helper()
	window := url.Values{
		"from": {time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)}, "endpoint": {"POST /api/v1/ingest"},
		"to": {time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)},
	}
	status, _, answer := s.send("GET", "/requests?"+window.Encode(), "")
	var page struct {
		TotalCount int `json:"totalCount"`
	}
	if err := json.Unmarshal([]byte(answer), &page); err != nil || status != http.StatusOK {
		s.d.t.Fatalf("list the request log: %d %s", status, answer)
	}
	return page.TotalCount
}

// logsCalls checks that each of two processes reads the calls of the other. A process that ends writes what it has not
// written yet; one that is killed loses no call that could be read once, and doubles none.
func (d *deployment) logsCalls() {
	t := d.t
	t.Helper()
	first, second := d.processes[0], d.processes[1]
	ids := first.sendMany("first", 40)
	runtest.Await(t, "the second process reads the calls of the first", func() bool { return second.logged() == 40 })

	ids = append(ids, first.sendMany("before the end", 60)...)
	first.stop()
	if n := second.logged(); n != 100 {
		t.Errorf("after the first process ended, the log holds %d sends of 100", n)
	}

	first.start()
	ids = append(ids, second.sendMany("second", 40)...)
	runtest.Await(t, "the first process reads the calls of the second", func() bool { return first.logged() == 140 })
	late := second.sendMany("before the crash", 40)
	second.kill()
	second.start()
	for _, id := range ids {
		if status, _, answer := first.send("GET", "/requests/"+id, ""); status != http.StatusOK {
			t.Errorf("after a crash, call %s: %d %s", id, status, answer)
		}
	}
	if n := second.logged(); n < len(ids) || n > len(ids)+len(late) {
		t.Errorf("after a crash the log holds %d sends of %d to %d", n, len(ids), len(ids)+len(late))
	}
}

// blanksElsewhere checks that a deletion in one process blanks the body of a call that another process has not written
// yet.
func (d *deployment) blanksElsewhere() {
	t := d.t
	t.Helper()
	first, second := d.processes[0], d.processes[1]
	const word = "chrysoprase"
	status, header, answer := second.send("POST", "/ingest", `{"id":"stone","content":"The stone is called `+word+`."}`)
	if status/100 != 2 {
		t.Fatalf("send: %d %s", status, answer)
	}
	if status, _, answer := first.send("POST", "/data-points/delete", `{"ids":["stone"]}`); status/100 != 2 {
		t.Fatalf("delete: %d %s", status, answer)
	}
	var call struct {
		Payload        json.RawMessage `json:"payload"`
		PayloadExpired bool            `json:"payloadExpired"`
	}
	runtest.Await(t, "the call is logged", func() bool {
		status, _, answer = first.send("GET", "/requests/"+header.Get("X-Request-Id"), "")
		return status == http.StatusOK
	})
	if err := json.Unmarshal([]byte(answer), &call); err != nil {
		t.Fatal(err)
	}
	if !call.PayloadExpired || strings.Contains(answer, word) {
		t.Errorf("after the deletion the call is %s", answer)
	}
}
