package access_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
)

func TestQuery_WebhooksOfOneProject(t *testing.T) {
	w := &writer{}
	w.organization("org")
	w.project("org", "one", 1)
	w.project("org", "two", 3)
	w.webhook("one", "first")
	w.webhook("one", "second")
	w.webhook("one", "gone")
	w.webhook("two", "foreign")
	w.changeWebhook("one", "first", "new name")
	w.pauseWebhook("one", "second", true)
	w.deleteWebhook("one", "gone")
	q := applied(t, w)
	row := func(slug, name, called string, paused bool) access.Webhook {
		return access.Webhook{
			ID: name, ProjectID: id(slug), TokenID: id("token of " + name), Settings: settingsOf(called), Paused: paused, CreatedAt: noon,
		}
	}
	got, err := q.Webhooks(t.Context(), projectOf("one", 1))
	if err != nil {
		t.Fatal(err)
	}
	want := []access.Webhook{row("one", "first", "new name", false), row("one", "second", "second", true)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
	one, caller, ok, err := q.WebhookOf(t.Context(), projectOf("one", 1), "second")
	holder, _, keyErr := q.KeyByHash(t.Context(), auth.WebhookToken, secret.Hash("token of second"))
	if err != nil || keyErr != nil || !ok {
		t.Fatal(ok, err, keyErr)
	}
	if diff := cmp.Diff(want[1], one) + cmp.Diff(holder.Principal, caller); diff != "" {
		t.Errorf("second (-want +got):\n%s", diff)
	}
	for _, unknown := range []string{"gone", "", "foreign"} {
		if w, _, ok, err := q.WebhookOf(t.Context(), projectOf("one", 1), unknown); ok || err != nil {
			t.Errorf("%q: %+v, %v, %v", unknown, w, ok, err)
		}
	}
	foreign, ok, err := q.WebhookByID(t.Context(), "foreign")
	if diff := cmp.Diff(row("two", "foreign", "foreign", false), foreign); err != nil || !ok || diff != "" {
		t.Errorf("foreign: %v, %v (-want +got):\n%s", ok, err, diff)
	}
	for _, unknown := range []string{"gone", "", "nobody's"} {
		if w, ok, err := q.WebhookByID(t.Context(), unknown); ok || err != nil {
			t.Errorf("%q: %+v, %v, %v", unknown, w, ok, err)
		}
	}
}
