package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/webhookview"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/tenants"
)

// WebhookCmd is the group "annals webhook".
type WebhookCmd struct {
	Create WebhookCreateCmd `cmd:"" help:"Create a webhook and print its URL, which is its credential."`
	List   WebhookListCmd   `cmd:"" help:"List the webhooks of a project."`
	Show   WebhookShowCmd   `cmd:"" help:"Show a webhook with its URL."`
	Change WebhookChangeCmd `cmd:"" help:"Replace the settings of a webhook."`
	Pause  WebhookPauseCmd  `cmd:"" help:"Refuse the events of a webhook until it is resumed. They are not kept."`
	Resume WebhookResumeCmd `cmd:"" help:"Take the events of a webhook again."`
	Rotate WebhookRotateCmd `cmd:"" name:"rotate-token" help:"Replace the token and print the new URL. The old one stops at once."`
	Delete WebhookDeleteCmd `cmd:"" help:"Delete a webhook. What it ingested stays."`
	Try    WebhookTryCmd    `cmd:"" help:"Show what an event would become. Nothing is written."`
}

// webhookFlags are those of every command on webhooks.
type webhookFlags struct {
	operatorapi.WhoFlags
	DataDir string `name:"data-dir" setting:"ANNALS_DATA_DIR" default:"./data" help:"Data folder of the running server."`
	OrgFlag
	JSON bool `name:"json" help:"Print the result as one JSON value."`
}

// settingsFlags are the settings of a webhook.
type settingsFlags struct {
	Name           string   `name:"name" required:"" help:"Name, 1 to 64 characters."`
	ContentPath    string   `name:"content-path" required:"" placeholder:"PATH" help:"JSON path of the text, such as $.issue.body; $ is the whole body."`
	OccurredAtPath string   `name:"occurred-at-path" placeholder:"PATH" help:"JSON path of the time: ISO 8601, or Unix seconds or milliseconds; default the time of receipt."`
	IDPath         string   `name:"id-path" placeholder:"PATH" help:"JSON path of the id of the data point; default the id of the event."`
	Audience       string   `name:"audience" placeholder:"SLUG" help:"Audience of the data points; default the whole project."`
	Filter         []string `name:"filter" sep:"none" placeholder:"EXPRESSION" help:"Ingest an event only if this matches: PATH is VALUE, PATH is-any-of VALUE VALUE, PATH contains VALUE, PATH exists; repeatable."`
}

func (f settingsFlags) settings() (webhook.Settings, error) {
	s := webhook.Settings{
		Name: f.Name, ContentPath: f.ContentPath, OccurredAtPath: f.OccurredAtPath, IDPath: f.IDPath, Audience: f.Audience,
	}
	for i, expression := range f.Filter {
		filter, err := webhook.ParseFilter(expression)
		if err != nil {
			return s, fmt.Errorf("filter %d: %w", i+1, err)
		}
		s.Filters = append(s.Filters, filter)
	}
	return s, nil // the server checks the rest
}

// webhookOperation is an operation that answers with a webhook.
type webhookOperation = operatorapi.Operation[operatorapi.WebhookRequest, tenants.Webhook]

// run performs an operation and prints the webhook: with a sentence before it, or as JSON.
func (f webhookFlags) run(
	ctx context.Context, env *Env, do webhookOperation, in operatorapi.WebhookRequest, sentence string,
) (err error) {
	if in.Target, err = f.target(); err != nil {
		return err
	}
	w, err := do.Call(ctx, operatorapi.Dial(f.DataDir), in)
	if err != nil {
		return err
	}
	if f.JSON {
		return printJSON(env.Stdout, w)
	}
	if sentence != "" {
		_, _ = fmt.Fprintf(env.Stdout, sentence+"\n", w.ID)
	}
	return webhookview.Print(env.Stdout, w)
}

// WebhookCreateCmd is "annals webhook create".
type WebhookCreateCmd struct {
	webhookFlags
	settingsFlags
	Project string `name:"project" required:"" placeholder:"SLUG" help:"Project of the data points."`
}

// Run creates the webhook.
func (c *WebhookCreateCmd) Run(ctx context.Context, env *Env) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	in := operatorapi.WebhookRequest{Project: c.Project, Settings: settings}
	return c.run(ctx, env, operatorapi.CreateWebhook, in, "webhook %s is created")
}

// WebhookChangeCmd is "annals webhook change".
type WebhookChangeCmd struct {
	webhookFlags
	settingsFlags
	ID string `arg:"" help:"Id of the webhook."`
}

// Run replaces the settings.
func (c *WebhookChangeCmd) Run(ctx context.Context, env *Env) error {
	settings, err := c.settings()
	if err != nil {
		return err
	}
	in := operatorapi.WebhookRequest{ID: c.ID, Settings: settings}
	return c.run(ctx, env, operatorapi.ChangeWebhook, in, "webhook %s is changed")
}

// WebhookListCmd is "annals webhook list".
type WebhookListCmd struct {
	webhookFlags
	Project string `name:"project" required:"" placeholder:"SLUG" help:"Project of the webhooks."`
}

// Run lists the webhooks.
func (c *WebhookListCmd) Run(ctx context.Context, env *Env) error {
	target, err := c.target()
	if err != nil {
		return err
	}
	in := operatorapi.WebhookRequest{Target: target, Project: c.Project}
	list, err := operatorapi.ListWebhooks.Call(ctx, operatorapi.Dial(c.DataDir), in)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, list)
	}
	return webhookview.PrintList(env.Stdout, list)
}

// webhookIDFlags name one webhook.
type webhookIDFlags struct {
	webhookFlags
	ID string `arg:"" help:"Id of the webhook."`
}

// WebhookShowCmd is "annals webhook show".
type WebhookShowCmd struct{ webhookIDFlags }

// Run shows the webhook.
func (c *WebhookShowCmd) Run(ctx context.Context, env *Env) error {
	return c.run(ctx, env, operatorapi.ShowWebhook, operatorapi.WebhookRequest{ID: c.ID}, "")
}

// WebhookPauseCmd is "annals webhook pause".
type WebhookPauseCmd struct{ webhookIDFlags }

// Run pauses the webhook.
func (c *WebhookPauseCmd) Run(ctx context.Context, env *Env) error {
	in := operatorapi.WebhookRequest{ID: c.ID, Pause: true}
	return c.run(ctx, env, operatorapi.PauseWebhook, in, "webhook %s is paused: its events are refused")
}

// WebhookResumeCmd is "annals webhook resume".
type WebhookResumeCmd struct{ webhookIDFlags }

// Run resumes the webhook.
func (c *WebhookResumeCmd) Run(ctx context.Context, env *Env) error {
	return c.run(ctx, env, operatorapi.PauseWebhook, operatorapi.WebhookRequest{ID: c.ID}, "webhook %s takes events")
}

// WebhookRotateCmd is "annals webhook rotate-token".
type WebhookRotateCmd struct{ webhookIDFlags }

// Run replaces the token.
func (c *WebhookRotateCmd) Run(ctx context.Context, env *Env) error {
	in := operatorapi.WebhookRequest{ID: c.ID}
	return c.run(ctx, env, operatorapi.RotateWebhook, in, "webhook %s has a new URL, and the old one is refused")
}

// WebhookDeleteCmd is "annals webhook delete".
type WebhookDeleteCmd struct {
	webhookIDFlags
	Yes bool `name:"yes" help:"Delete without asking."`
}

// Run deletes the webhook.
func (c *WebhookDeleteCmd) Run(ctx context.Context, env *Env) error {
	if !c.Yes {
		question := "Delete webhook " + c.ID + "? Its URL stops at once, for good."
		yes, err := env.terminal().Ask(question)
		if err != nil {
			return fmt.Errorf("%s To delete it, add --yes: %w", question, err)
		}
		if !yes {
			return errors.New("nothing was deleted")
		}
	}
	in := operatorapi.WebhookRequest{ID: c.ID}
	return c.run(ctx, env, operatorapi.DeleteWebhook, in, "webhook %s is deleted")
}

// WebhookTryCmd is "annals webhook try".
type WebhookTryCmd struct {
	webhookIDFlags
	File string `arg:"" help:"File with the body of an event, - for standard input."`
}

// Run shows what the event would become.
func (c *WebhookTryCmd) Run(ctx context.Context, env *Env) error {
	target, err := c.target()
	if err != nil {
		return err
	}
	in := operatorapi.WebhookRequest{Target: target, ID: c.ID}
	if in.Body, err = webhookview.ReadEvent(c.File, env.Stdin); err != nil {
		return err
	}
	event, err := operatorapi.TryWebhook.Call(ctx, operatorapi.Dial(c.DataDir), in)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.Stdout, event)
	}
	return webhookview.PrintTried(env.Stdout, event)
}
