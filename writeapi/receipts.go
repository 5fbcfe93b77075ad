package writeapi

import (
	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
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
	ProjectID   int64                `json:"projectId"`
	IngestionID uuid.UUID            `json:"ingestionId"`
	Status      string               `json:"status"`
	Unchanged   *bool                `json:"unchanged"`
	Items       []client.ItemReceipt `json:"items"`
}

func batchReceiptOf(r commands.BatchReceipt) batchReceiptView {
	v := batchReceiptView{
		ProjectID: r.ProjectID, IngestionID: r.IngestionID, Status: r.Status, Unchanged: r.Unchanged,
		Items: make([]client.ItemReceipt, len(r.Items)),
	}
	for i, item := range r.Items {
		v.Items[i] = client.ItemReceipt(item)
	}
	return v
}

// deletionReceiptView is the JSON of a commands.DeletionReceipt.
type deletionReceiptView struct {
	OperationID uuid.UUID `json:"operationId"`
	IDs         []string  `json:"ids"`
}

func identityStatusesOf(list []commands.IdentityStatus) []client.BulkStatus {
	views := make([]client.BulkStatus, len(list))
	for i, s := range list {
		views[i] = client.BulkStatus(s)
	}
	return views
}
