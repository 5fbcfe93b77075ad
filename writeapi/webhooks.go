package writeapi

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/httpx"
)

// eventReceiver ingests events of webhooks.
type eventReceiver interface {
	ReceiveEvent(ctx context.Context, call commands.Call, eventID string, body []byte) (commands.EventReceipt, error)
}

type webhookAPI struct {
	commands eventReceiver
}

// receive is POST /api/v1/webhooks/:webhookId/:token.
func (a webhookAPI) receive(c echo.Context) error {
	body, err := httpx.RawBody(c, limit.WebhookBody, fault.New(fault.TooLarge, fault.CodeWebhookBodyTooLarge,
		"the event has more than %d bytes", limit.WebhookBody).With("limitBytes", limit.WebhookBody))
	if err != nil {
		return err
	}
	requestID := httpx.RequestID(c)
	view := client.ReceivedEvent{
		EventID: httpx.EventID(requestID), RequestID: requestID.String(), Verdict: client.VerdictIngested,
	}
	receipt, err := a.commands.ReceiveEvent(c.Request().Context(), callOf(c), view.EventID,
		webhook.Plain(c.Request().Header.Get(echo.HeaderContentType), body))
	if receipt.SourceID != "" {
		noteSources(c, receipt.SourceID)
	}
	if err != nil {
		return err
	}
	note := httpx.NoteOf(c)
	note.CreditTenths = receipt.CreditTenths
	if receipt.DroppedBy != "" {
		view.Verdict, view.DroppedBy = client.VerdictDropped, &receipt.DroppedBy
		note.Verdict, note.DroppedBy = view.Verdict, receipt.DroppedBy
		return c.JSON(http.StatusOK, view)
	}
	note.Verdict = view.Verdict
	noteSend(c, nil, receipt.Send.IngestionID, receipt.CreditTenths)
	view.IngestionID, view.DataPointID = new(receipt.Send.IngestionID.String()), &receipt.SourceID
	view.Unchanged = receipt.Send.Unchanged
	return c.JSON(http.StatusAccepted, view)
}
