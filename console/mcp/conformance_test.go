//nolint:staticcheck // The suite tests what the protocol has until its window of deprecation ends.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/mcptest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// oneKey is a project whose key is every key.
type oneKey struct{ auth.Keys }

func (oneKey) KeyByHash(context.Context, auth.Kind, [32]byte) (auth.Holder, bool, error) {
	return auth.Holder{Principal: auth.Principal{Kind: auth.ProjectKey, KeyID: uuid.New()}}, true, nil
}

// The transport and what stands before it do what each revision of the protocol requires, with the tools, prompts and
// resources that the suite wants a server to have.
func TestConformance(t *testing.T) {
	const root = "../.."
	mcptest.Suite(t, root)
	document, err := os.ReadFile("../../readapi/openapi.yaml")
	runtest.Must(t, err)
	key := secret.ProjectKeyPrefix + strings.Repeat("k", 40)
	at := ""
	proxy := mcptest.Proxy(t, func() string { return key }, func() string { return at })
	s, err := New(Config{
		URLs: auth.URLs{API: proxy.URL, Console: proxy.URL, Auth: proxy.URL}, Version: "1", Document: document,
		Keys: oneKey{}, Logger: runtest.Warnings(t),
	})
	runtest.Must(t, err)
	addFixtures(s.servers[view{auth.MCPPath, true, true, named}])
	at = serveAt(t, proxy.URL, s)
	for _, revision := range mcptest.Revisions {
		mcptest.Server(t, root, proxy.URL+"/mcp", revision, "testdata/conformance-"+revision+".yaml")
	}
}

// The contents that the conformance suite asks for.
var (
	word     = &sdk.TextContent{Text: "This is a simple text response for testing."}
	image    = &sdk.ImageContent{Data: []byte("\x89PNG\r\n\x1a\n"), MIMEType: "image/png"}
	embedded = &sdk.EmbeddedResource{Resource: resource("test://embedded-resource")}
)

func resource(uri string) *sdk.ResourceContents {
	return &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "This is the content of the resource."}
}

func answer(contents ...sdk.Content) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: contents}
}

// fixture describes them: the suite wants that all are described.
const fixture = "What the conformance suite calls."

// anything is the schema of tools that take no arguments, or any.
var anything = json.RawMessage(`{"type":"object"}`)

// headers is the schema of a tool with an argument that clients send as a header too.
var headers = json.RawMessage(`{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`)

// addFixtures adds the tools, prompts and resources that the conformance suite knows by name.
func addFixtures(s *sdk.Server) {
	for name, result := range map[string]*sdk.CallToolResult{
		"test_simple_text": answer(word), "test_image_content": answer(image),
		"test_audio_content":     answer(&sdk.AudioContent{Data: []byte("RIFF"), MIMEType: "audio/wav"}),
		"test_embedded_resource": answer(embedded), "test_multiple_content_types": answer(word, image, embedded),
		"test_error_handling":        {IsError: true, Content: []sdk.Content{word}},
		"test_streaming_elicitation": answer(word), "test_x_mcp_header": answer(word),
	} {
		schema := anything
		if name == "test_x_mcp_header" {
			schema = headers
		}
		s.AddTool(&sdk.Tool{Name: name, Description: fixture, InputSchema: schema},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return result, nil })
	}
	for tool, handle := range map[string]sdk.ToolHandler{
		"test_tool_with_logging": logs, "test_logging_tool": logs, "test_tool_with_progress": progresses,
		"test_sampling": sends, "test_elicitation": elicitsNow, "test_elicitation_sep1034_defaults": elicitsNow,
		"test_elicitation_sep1330_enums":             elicitsNow,
		"test_missing_capability":                    samples,
		"test_input_required_result_elicitation":     asks(name),
		"test_input_required_result_sampling":        asks(greeting),
		"test_input_required_result_list_roots":      asks(roots),
		"test_input_required_result_multiple_inputs": asks(name, greeting, roots),
		"test_input_required_result_request_state":   asks(confirm),
		"test_input_required_result_tampered_state":  asks(confirm),
		"test_input_required_result_multi_round":     rounds,
		"test_input_required_result_capabilities":    asksWhatIsDeclared,
	} {
		s.AddTool(&sdk.Tool{Name: tool, Description: fixture, InputSchema: anything}, handle)
	}
	addPrompts(s)
	read := func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		contents := resource(r.Params.URI)
		if strings.HasSuffix(r.Params.URI, "binary") {
			contents.Text, contents.Blob, contents.MIMEType = "", image.Data, image.MIMEType
		}
		id, template := strings.CutPrefix(strings.TrimSuffix(r.Params.URI, "/data"), "test://template/")
		if template {
			contents.Text, contents.MIMEType = fmt.Sprintf(`{"id":%q}`, id), "application/json"
		}
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}}, nil
	}
	for _, name := range []string{"static-text", "static-binary"} {
		s.AddResource(&sdk.Resource{Name: name, URI: "test://" + name}, read)
	}
	s.AddResourceTemplate(&sdk.ResourceTemplate{Name: "template", URITemplate: "test://template/{id}/data"}, read)
}

func addPrompts(s *sdk.Server) {
	for name, messages := range map[string]func(map[string]string) []sdk.Content{
		"test_simple_prompt": func(map[string]string) []sdk.Content { return []sdk.Content{word} },
		"test_prompt_with_arguments": func(args map[string]string) []sdk.Content {
			return []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("arg1='%s', arg2='%s'", args["arg1"], args["arg2"])}}
		},
		"test_prompt_with_embedded_resource": func(args map[string]string) []sdk.Content {
			return []sdk.Content{&sdk.EmbeddedResource{Resource: resource(args["resourceUri"])}}
		},
		"test_prompt_with_image": func(map[string]string) []sdk.Content { return []sdk.Content{image} },
	} {
		s.AddPrompt(&sdk.Prompt{Name: name, Description: fixture},
			func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
				result := &sdk.GetPromptResult{}
				for _, content := range messages(r.Params.Arguments) {
					result.Messages = append(result.Messages, &sdk.PromptMessage{Role: "user", Content: content})
				}
				return result, nil
			})
	}
	s.AddPrompt(&sdk.Prompt{Name: "test_input_required_result_prompt", Description: fixture},
		func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			if r.Params.InputResponses == nil {
				return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"user_context": elicits("context")}}, nil
			}
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: word}}}, nil
		})
}

func logs(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: "working"})
	return answer(word), err
}

func progresses(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	for _, done := range []float64{0, 50, 100} {
		if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Progress: done, Total: 100,
		}); err != nil {
			return nil, err
		}
	}
	return answer(word), nil
}

// samples needs a client that samples.
func samples(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	if c := r.ClientCapabilities(); c != nil && c.Sampling != nil {
		return answer(word), nil
	}
	data, err := json.Marshal(sdk.MissingRequiredClientCapabilityData{
		RequiredCapabilities: &sdk.ClientCapabilities{Sampling: &sdk.SamplingCapabilities{}},
	})
	if err != nil {
		return nil, err
	}
	return nil, &jsonrpc.Error{Code: sdk.CodeMissingRequiredClientCapabilities, Message: "needs sampling", Data: data}
}

// sends and elicitsNow call the client while it waits.
func sends(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	_, err := r.Session.CreateMessage(ctx, &sdk.CreateMessageParams{
		Messages: []*sdk.SamplingMessage{{Role: "user", Content: word}}, MaxTokens: 50,
	})
	return answer(word), err
}

func elicitsNow(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	_, err := r.Session.Elicit(ctx, elicits("username"))
	return answer(word), err
}

// What tools ask of the client before they answer, by the names that the suite answers.
const (
	name     = "user_name"
	greeting = "greeting"
	roots    = "client_roots"
	confirm  = "confirm"
)

func elicits(field string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: "What is it?", RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{field: map[string]any{"type": "string"}}, "required": []string{field},
	}}
}

// wants are the requests of some names.
func wants(names ...string) sdk.InputRequestMap {
	requests := sdk.InputRequestMap{}
	for _, n := range names {
		switch n {
		case greeting:
			requests[n] = &sdk.CreateMessageParams{
				Messages: []*sdk.SamplingMessage{{Role: "user", Content: word}}, MaxTokens: 50,
			}
		case roots:
			requests[n] = &sdk.ListRootsParams{}
		default:
			requests[n] = elicits(strings.TrimPrefix(n, "user_"))
		}
	}
	return requests
}

const state = "state"

// asks is a tool that answers once it has what it asks for, with the state that it sent.
func asks(names ...string) sdk.ToolHandler {
	return func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if cmp.Or(r.Params.RequestState, state) != state {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the state is not what was sent"}
		}
		for _, n := range names {
			given, ok := r.Params.InputResponses[n]
			elicited, is := given.(*sdk.ElicitResult)
			if !ok || is && (elicited.Action != "accept" || len(elicited.Content) == 0) {
				return &sdk.CallToolResult{InputRequests: wants(names...), RequestState: state}, nil
			}
		}
		return answer(&sdk.TextContent{Text: "state-ok"}), nil
	}
}

// rounds asks twice.
func rounds(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	switch r.Params.RequestState {
	case "":
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"step1": elicits("name")}, RequestState: "1"}, nil
	case "1":
		return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"step2": elicits("color")}, RequestState: "2"}, nil
	}
	return answer(word), nil
}

// asksWhatIsDeclared asks for what the client declares that it can answer.
func asksWhatIsDeclared(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var names []string
	if c := r.ClientCapabilities(); c != nil && c.Sampling != nil {
		names = append(names, greeting)
	}
	if c := r.ClientCapabilities(); c != nil && c.Elicitation != nil {
		names = append(names, name)
	}
	if len(names) == 0 || len(r.Params.InputResponses) > 0 {
		return answer(word), nil
	}
	return &sdk.CallToolResult{InputRequests: wants(names...)}, nil
}
