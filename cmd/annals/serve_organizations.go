package main

import (
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/auth"
)

// operatorCall is a call that no request of the API asked for, by whom its events name.
func operatorCall(by string, at time.Time) commands.Call {
	return commands.Call{Principal: auth.Principal{Kind: auth.Kind(by)}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: at}
}
