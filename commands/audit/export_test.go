package audit

import "net/http"

// SetClient has a place on the web call by a client.
func SetClient(p Place, client *http.Client) { p.(*web).client = client }
