package writeapi

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
)

// receiptView is the JSON of a commands.Receipt.
type receiptView struct {
	ProjectID    int64     `json:"projectId"`
	IngestionID  uuid.UUID `json:"ingestionId"`
	SourceID     string    `json:"sourceId"`
	Status       string    `json:"status"`
	Unchanged    *bool     `json:"unchanged"`
	CreditTenths int64     `json:"-"`
}

// batchReceiptView is the JSON of a commands.BatchReceipt.
type batchReceiptView struct {
	ProjectID   int64             `json:"projectId"`
	IngestionID uuid.UUID         `json:"ingestionId"`
	Status      string            `json:"status"`
	Unchanged   *bool             `json:"unchanged"`
	Items       []itemReceiptView `json:"items"`
}

// itemReceiptView is the JSON of a commands.ItemReceipt.
type itemReceiptView struct {
	Ordinal   int    `json:"ordinal"`
	SourceID  string `json:"sourceId"`
	Status    string `json:"status"`
	Unchanged *bool  `json:"unchanged"`
}

func batchReceiptOf(r commands.BatchReceipt) batchReceiptView {
	v := batchReceiptView{
		ProjectID: r.ProjectID, IngestionID: r.IngestionID, Status: r.Status, Unchanged: r.Unchanged,
		Items: make([]itemReceiptView, len(r.Items)),
	}
	for i, item := range r.Items {
		v.Items[i] = itemReceiptView(item)
	}
	return v
}

// deletionReceiptView is the JSON of a commands.DeletionReceipt.
type deletionReceiptView struct {
	OperationID uuid.UUID `json:"operationId"`
	IDs         []string  `json:"ids"`
}

// keyReceiptView is the JSON of a commands.KeyReceipt.
type keyReceiptView struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	KeyPrefix string    `json:"keyPrefix"`
	KeySuffix string    `json:"keySuffix"`
	CreatedAt time.Time `json:"createdAt"`
	Key       string    `json:"key"`
}

// identityStatusView is the JSON of a commands.IdentityStatus.
type identityStatusView struct {
	Identity string `json:"identity"`
	Status   string `json:"status"`
}

func identityStatusesOf(list []commands.IdentityStatus) []identityStatusView {
	views := make([]identityStatusView, len(list))
	for i, s := range list {
		views[i] = identityStatusView(s)
	}
	return views
}
