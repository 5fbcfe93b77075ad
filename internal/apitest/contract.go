// Package apitest holds responses against the OpenAPI document, in every test that calls the API.
package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/uuid"
)

const prefix = "/api/v1"

// Contract is the OpenAPI document, read strictly: a response with a field, a status, a code or a
// value of an open enumeration that the document does not have is wrong, although clients must expect
// new ones.
type Contract struct {
	doc *openapi3.T
	// validated is doc under the version 3.0. The library validates it by its own validator, which
	// checks formats and is fast; for 3.1 it compiles the schema of every response.
	validated *openapi3.T
	// edgeOnly leaves out what is particular to a route.
	edgeOnly bool
}

// Load reads the document; it ends the test where it cannot be read. Whether it is valid as a whole
// is for one test of its package to ask.
func Load(t testing.TB, document []byte) *Contract {
	t.Helper()
	read, _ := documents.LoadOrStore(string(document), sync.OnceValues(func() (*openapi3.T, error) {
		return readDocument(document)
	}))
	doc, err := read.(func() (*openapi3.T, error))()
	if err != nil {
		t.Fatalf("read the OpenAPI document: %v", err)
	}
	validated := *doc
	validated.OpenAPI = "3.0.3"
	return &Contract{doc: doc, validated: &validated}
}

// documents are the documents that were read, by their text: to read one takes longer than most
// tests, and a process has hundreds of clients.
var documents sync.Map

func readDocument(document []byte) (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, err
	}
	closed := false
	for name, ref := range doc.Components.Schemas {
		if s := ref.Value; s.Type.Is("object") && s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil {
			s.AdditionalProperties.Has = &closed
		}
		if err := ref.WalkSubtree(readSchema); err != nil {
			return nil, fmt.Errorf("read the schema %s: %w", name, err)
		}
	}
	return doc, nil
}

// openEnum is the extension that lists the values of an enumeration that can grow. Generated clients
// read any value of its type.
const openEnum = "x-extensible-enum"

// readSchema closes an open enumeration, and lets null into a schema that takes anything.
func readSchema(_ string, ref *openapi3.SchemaRef) error {
	s := ref.Value
	if s.IsEmpty() {
		s.Nullable = true
	}
	values, ok := s.Extensions[openEnum]
	if !ok {
		return nil
	}
	list, ok := values.([]any)
	if !ok || len(list) == 0 {
		return fmt.Errorf("%s is %v: want a list", openEnum, values)
	}
	for _, value := range list {
		if !strings.Contains(s.Description, fmt.Sprintf("`%v`", value)) {
			return fmt.Errorf("the description names no `%v` of %s", value, openEnum)
		}
	}
	s.Enum = list
	return nil
}

// formats are the formats of the document, which the library itself leaves unchecked or checks
// loosely.
var formats = []openapi3.SchemaValidationOption{
	openapi3.WithStringFormatValidator("uuid", openapi3.NewCallbackValidator(func(text string) error {
		if id, err := uuid.Parse(text); err != nil || id.String() != text {
			return fmt.Errorf("%q is no UUID", text)
		}
		return nil
	})),
	openapi3.WithStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(text string) error {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || !strings.HasSuffix(text, "Z") || !at.Equal(at.Truncate(time.Microsecond)) {
			return fmt.Errorf("%q is no instant in UTC at microsecond precision", text)
		}
		return nil
	})),
}

// Document is the document as read.
func (c *Contract) Document() *openapi3.T { return c.doc }

// Transport is a transport that checks every response of the API that it brings.
func (c *Contract) Transport(t testing.TB, next http.RoundTripper) http.RoundTripper {
	return transport{contract: c, t: t, next: next}
}

type transport struct {
	contract *Contract
	t        testing.TB
	next     http.RoundTripper
}

func (tr transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := tr.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if err := res.Body.Close(); err != nil {
		return nil, fmt.Errorf("close the response: %w", err)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	if err := tr.contract.Check(req, res.StatusCode, res.Header, body); err != nil {
		tr.t.Errorf("%s %s answered %d: %v\n%s", req.Method, req.URL.EscapedPath(), res.StatusCode, err, body)
	}
	return res, nil
}

// Check returns how a response breaks the contract. It ignores responses of paths outside the API.
func (c *Contract) Check(req *http.Request, status int, header http.Header, body []byte) error {
	path := req.URL.EscapedPath()
	if path != prefix && !strings.HasPrefix(path, prefix+"/") {
		return nil
	}
	if id, err := uuid.Parse(header.Get("X-Request-Id")); err != nil || id.Version() != 7 {
		return fmt.Errorf("X-Request-Id is %q: want a UUIDv7", header.Get("X-Request-Id"))
	}
	if origin, ok := header["Access-Control-Allow-Origin"]; ok {
		return fmt.Errorf("Access-Control-Allow-Origin is %q: want none", origin)
	}
	// Beyond the limit of requests per minute the answer has no body; every other 429 is an envelope.
	overLimit := status == http.StatusTooManyRequests && len(body) == 0
	if status >= 400 && req.Method != http.MethodHead && !overLimit {
		if err := c.checkEnvelope(status, header, body); err != nil {
			return err
		}
	}
	if status == http.StatusServiceUnavailable && header.Get("Retry-After") == "" &&
		!bytes.Contains(body, []byte("pipeline-disabled")) {
		return fmt.Errorf("a 503 for load has no Retry-After")
	}
	if c.edgeOnly {
		return nil
	}
	route := c.route(req.Method, path)
	if route == nil {
		switch status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
			return nil
		}
		return fmt.Errorf("the document has no such route")
	}
	if overLimit {
		return checkOverLimit(route.Operation, header)
	}
	if status == http.StatusNoContent && len(body) > 0 {
		return fmt.Errorf("a 204 has a body")
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: route},
		Status:                 status, Header: header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true, SchemaValidationOptions: formats},
	}
	input.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(req.Context(), input); err != nil {
		return err
	}
	if status < 400 || req.Method == http.MethodHead {
		return nil
	}
	return checkCode(route.Operation.Responses.Status(status).Value, body)
}

// listedCodes matches the end of a description that lists the codes of a response.
var listedCodes = regexp.MustCompile("Codes? ((?:`[a-z-]+`(?:, )?)+)\\.$")

// Codes are the codes that the description of a response lists.
func Codes(response *openapi3.Response) []string {
	if response.Description == nil {
		return nil
	}
	match := listedCodes.FindStringSubmatch(*response.Description)
	if match == nil {
		return nil
	}
	return strings.Split(strings.ReplaceAll(match[1], "`", ""), ", ")
}

// errorData is the extension of a response that lists by code what data has.
const errorData = "x-error-data"

// checkCode returns what is wrong with the code of an error and the fields of its data.
func checkCode(response *openapi3.Response, body []byte) error {
	var envelope struct {
		Code string
		Data map[string]any
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return fmt.Errorf("the error is not JSON: %w", err)
	}
	if codes := Codes(response); !slices.Contains(codes, envelope.Code) {
		return fmt.Errorf("the code is %s: the response has %v", envelope.Code, codes)
	}
	byCode, _ := response.Extensions[errorData].(map[string]any)
	fields, _ := byCode[envelope.Code].([]any)
	for _, field := range fields {
		if _, ok := envelope.Data[fmt.Sprint(field)]; !ok {
			return fmt.Errorf("data of %s lacks %s", envelope.Code, field)
		}
	}
	return nil
}

// checkOverLimit returns what is wrong with a response beyond the limit of requests per minute.
func checkOverLimit(op *openapi3.Operation, header http.Header) error {
	if op.Responses.Status(http.StatusTooManyRequests) == nil {
		return fmt.Errorf("the route is outside of the limit of requests per minute")
	}
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
		return fmt.Errorf("Retry-After is %q: want seconds of the minute", header.Get("Retry-After"))
	}
	return nil
}

func (c *Contract) checkEnvelope(status int, header http.Header, body []byte) error {
	if kind := header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return fmt.Errorf("the error is %q: want JSON", kind)
	}
	var envelope map[string]any
	if err := json.Unmarshal(body, &envelope); err != nil {
		return fmt.Errorf("the error is not JSON: %w", err)
	}
	if err := c.doc.Components.Schemas["Error"].Value.VisitJSON(envelope, formats...); err != nil {
		return fmt.Errorf("the error is no envelope: %w", err)
	}
	if inBody, ok := envelope["status"].(float64); !ok || int(inBody) != status {
		return fmt.Errorf("the envelope has status %v", envelope["status"])
	}
	return nil
}

// route finds the operation of a request; of two templates that fit, the one with fewer parameters.
func (c *Contract) route(method, path string) *routers.Route {
	var found *routers.Route
	fewest := 0
	for template, item := range c.doc.Paths.Map() {
		params, ok := match(template, path)
		op := item.GetOperation(method)
		if ok && op != nil && (found == nil || params < fewest) {
			found = &routers.Route{Spec: c.validated, Path: template, PathItem: item, Method: method, Operation: op}
			fewest = params
		}
	}
	return found
}

func match(template, path string) (params int, ok bool) {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if rest := "/{path}"; strings.HasSuffix(template, rest) && len(got) >= len(want) { // it may have slashes, or be empty
		want = want[:len(want)-1]
		got, params = got[:len(want)], 1
	}
	if len(want) != len(got) {
		return 0, false
	}
	for i := range want {
		switch {
		case strings.HasPrefix(want[i], "{") && got[i] != "":
			params++
		case want[i] != got[i]:
			return 0, false
		}
	}
	return params, true
}
