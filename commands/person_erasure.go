package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/erasures"
)

// PersonCommands are the commands that the erasure of a person (package erasure) calls in the project of the person.
type PersonCommands struct{ Service *Service }

// DeleteOf deletes data points, with the deletion that clients use. It returns the id of the deletion, zero if nothing
// was deleted because a client deleted one of them since.
func (c PersonCommands) DeleteOf(ctx context.Context, p erasures.Person, sourceIDs []string) (uuid.UUID, error) {
	call, err := c.call(ctx, p)
	if err != nil {
		return uuid.Nil, err
	}
	receipt, err := c.Service.DeleteDataPoints(ctx, call, sourceIDs)
	if receipt.OperationID != uuid.Nil { // even if it is not visible yet
		return receipt.OperationID, nil
	}
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeDataPointNotFound {
		err = nil
	}
	return uuid.Nil, err
}

// RemoveRecord removes the identity record, if there is one.
func (c PersonCommands) RemoveRecord(ctx context.Context, p erasures.Person) error {
	call, err := c.call(ctx, p)
	if err != nil {
		return err
	}
	err = c.Service.DeleteIdentity(ctx, call, p.Identity)
	if f, is := errors.AsType[*fault.Error](err); is && f.Code == fault.CodeNotFound {
		err = nil
	}
	return err
}

// call is the call of who asked for the erasure.
func (c PersonCommands) call(ctx context.Context, p erasures.Person) (Call, error) {
	namespace, ok, err := c.Service.journal.namespaceOf(ctx, p.ProjectID)
	if err == nil && !ok {
		err = fmt.Errorf("the registry has no project %s", p.ProjectID)
	}
	return Call{
		Principal: auth.Principal{
			Kind: auth.Kind(p.By), Project: auth.Project{ID: p.ProjectID, Namespace: namespace},
		},
		RequestID: p.ID, ReceivedAt: c.Service.journal.Now(),
	}, err
}
