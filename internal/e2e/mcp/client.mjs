// Lists tools, remembers and recalls with one client of npm: node client.mjs sdk|client|mcp-remote FOLDER URL KEY, where
// FOLDER has the installed modules.
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const [name, folder, url, key] = process.argv.slice(2);
const require = createRequire(folder + '/');
const load = async (module) => import(pathToFileURL(require.resolve(module)));
const headers = {Authorization: `Bearer ${key}`};

let Client, transport;
if (name === 'client') {
  const m = await load('@modelcontextprotocol/client');
  Client = m.Client;
  transport = new m.StreamableHTTPClientTransport(new URL(url), {requestInit: {headers}});
} else {
  ({Client} = await load('@modelcontextprotocol/sdk/client/index.js'));
  if (name === 'sdk') {
    const m = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
    transport = new m.StreamableHTTPClientTransport(new URL(url), {requestInit: {headers}});
  } else {
    const m = await load('@modelcontextprotocol/sdk/client/stdio.js');
    transport = new m.StdioClientTransport({command: process.execPath, args: [
      folder + '/node_modules/mcp-remote/dist/proxy.js', url, '--allow-http', '--transport', 'http-only',
      '--header', `Authorization:${headers.Authorization}`,
    ]});
  }
}

const client = new Client({name: 'test-' + name, version: '1.0.0'});
await client.connect(transport);
const use = async (tool, args) => {
  const answer = await client.callTool({name: tool, arguments: args});
  if (answer.isError) throw new Error(JSON.stringify(answer.content));
  return answer;
};
const {tools} = await client.listTools();
await use('remember', {content: `The ${name} is in the blue tin.`, id: name, identity: 'ana'});
for (;;) { // the test that runs this ends it
  const {structuredContent, content} = await use('recall', {query: `where is the ${name}?`, identity: 'ben'});
  if (structuredContent.results.some((r) => r.sources.some((s) => s.sourceId === name))) {
    console.log(JSON.stringify({tools: tools.length, text: content[0].text}));
    break;
  }
}
await client.close();
process.exit(0);
