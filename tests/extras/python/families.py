"""Chat templates in the form of known families, written for these tests and shorter than the published ones, and the
expected text of each for the tool calls in masks_test.py, written by hand. If an answer is between {% generation %} and
{% endgeneration %}, the tests use the template with and without these marks."""
import dataclasses
import re

WEATHER = '{"name": "weather", "arguments": {"city": "Paris"}}'
SUM = '{"name": "sum", "arguments": {"values": [1, 2]}}'


@dataclasses.dataclass
class Family:
    template: str
    asks: str           # the text before an answer, with which the model is prompted; or one of these
    end: str            # what ends one
    special: list       # tokens
    before: str = ""    # what an answer begins with, in addition to its content
    trims: bool = False  # whether leading and trailing spaces of contents are removed
    system: bool = True  # whether there are system messages
    tools: bool = True
    call: str = "{}"    # a tool call, as the model writes it
    calls: str = ""     # two calls; "": each like a single one, with a line feed in between
    said_and_call: str = "{}\n{}"  # a text and a call; "refused", also for two calls, if they are not written
    last_before: str = ""  # additional beginning of the last answer
    last_end: str = ""  # the end of the last answer; "": like all others
    bos: str = ""
    eos: str = ""

    def __post_init__(self):
        self.template = self.template.replace("\n", "")  # a line feed in the output is written as its escape

    def plain(self):
        """Return the template without marks of answers."""
        return re.sub(r"\{%-? *(end)?generation *-?%\}", "", self.template)


LLAMA3 = r"""{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}
{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}{% if m.role == 'assistant' %}
{% generation %}{{ m.content | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}
{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

LLAMA3_1 = r"""{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\n' }}
{% if tools %}{{ 'Environment: ipython\n' }}{% endif %}{{ 'Cutting Knowledge Date: December 2023\n\n' }}
{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% set rest = messages[1:] %}
{% else %}{% set rest = messages %}{% endif %}{{ '<|eot_id|>' }}
{% for m in rest %}{% if m.role == 'tool' %}
{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' + m.content | tojson + '<|eot_id|>' }}
{% elif m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call of a tool at once') }}{% endif %}
{% set call = m.tool_calls[0].function %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{% generation %}{{ '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|eot_id|>' }}
{% endgeneration %}
{% else %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
{% if loop.first and tools %}{{ 'Functions: ' + tools | tojson + '\n\n' }}{% endif %}{% if m.role == 'assistant' %}
{% generation %}{{ m.content | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}
{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

QWEN_TOOLS = r"""{{ '\n\n# Tools\n<tools>' }}{% for tool in tools %}{{ '\n' + tool | tojson }}
{% endfor %}{{ '\n</tools>' }}"""
QWEN_CALLS = r"""{% for c in m.tool_calls %}{% if m.content or not loop.first %}{{ '\n' }}{% endif %}
{{ '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson }}
{{ '}\n</tool_call>' }}{% endfor %}"""
QWEN_RESULTS = r"""{% if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"""
QWEN_ASKS = r"""{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

QWEN2_5 = r"""{{ '<|im_start|>system\n' }}{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% else %}{{ 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}{% endif %}
{% if tools %}""" + QWEN_TOOLS + r"""{% endif %}{{ '<|im_end|>\n' }}
{% for m in messages %}{% if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% elif m.role == 'assistant' %}
{{ '<|im_start|>assistant\n' }}{% generation %}{{ m.content or '' }}""" + QWEN_CALLS + r"""{{ '<|im_end|>' }}
{% endgeneration %}{{ '\n' }}{% elif m.role == 'tool' %}""" + QWEN_RESULTS + "{% endif %}{% endfor %}" + QWEN_ASKS

QWEN3 = r"""{% if tools or messages[0].role == 'system' %}{{ '<|im_start|>system\n' }}
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{% if tools %}""" + QWEN_TOOLS + r"""{% endif %}
{{ '<|im_end|>\n' }}{% endif %}
{% set last = namespace(query=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set last.query = loop.index0 %}
{% endif %}{% endfor %}
{% for m in messages %}{% if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% elif m.role == 'assistant' %}
{% set content = m.content or '' %}{% set thinking = m.reasoning_content or '' %}
{% if '</think>' in content %}{% set thinking = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}
{{ '<|im_start|>assistant\n' }}{% generation %}
{% if loop.index0 > last.query and (loop.last or thinking) %}
{{ '<think>\n' + thinking + '\n</think>\n\n' }}{% endif %}{{ content }}""" + QWEN_CALLS + r"""
{{ '<|im_end|>\n' }}{% endgeneration %}
{% elif m.role == 'tool' %}""" + QWEN_RESULTS + "{% endif %}{% endfor %}" + QWEN_ASKS

GEMMA = r"""{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system messages') }}{% endif %}
{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate') }}{% endif %}
{% if m.role == 'assistant' %}{{ '<start_of_turn>model\n' }}{% generation %}{{ m.content | trim + '<end_of_turn>\n' }}
{% endgeneration %}{% else %}{{ '<start_of_turn>' + m.role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endif %}
{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

GEMMA3 = r"""{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}
{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}
{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate') }}{% endif %}
{% if m.role == 'assistant' %}{{ '<start_of_turn>model\n' }}{% generation %}{{ m.content | trim + '<end_of_turn>' }}
{% endgeneration %}{{ '\n' }}{% else %}
{{ '<start_of_turn>user\n' + (first if loop.first else '') + m.content | trim + '<end_of_turn>\n' }}{% endif %}
{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

MISTRAL = r"""{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}
{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}
{% for m in rest %}{% if m.role == 'user' %}{% if loop.first and tools %}
{{ '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{% endif %}
{{ '[INST] ' + (first if loop.first else '') + m.content + '[/INST]' }}
{% elif m.role == 'assistant' %}{% generation %}{% if m.tool_calls %}{{ '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}
{{ '{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson }}
{{ ', "id": "' + c.id + '"}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']' + eos_token }}
{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endgeneration %}
{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS] {"content": ' + m.content + '}[/TOOL_RESULTS]' }}
{% else %}{{ raise_exception('user, assistant and tool alone') }}{% endif %}{% endfor %}"""

SMOLLM3 = r"""{% set thinks = enable_thinking | default(false) %}{{ '<|im_start|>system\n## Metadata\n\n' }}
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
{% if tools %}{{ '### Tools\n' + tools | tojson }}{% endif %}{{ '<|im_end|>\n' }}
{% for m in messages %}{% if m.role == 'user' %}{{ '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
{% elif m.role == 'assistant' %}
{% generation %}{{ '<|im_start|>assistant\n' + ('' if thinks else '<think>\n\n</think>\n') }}
{{ m.content or '' }}""" + QWEN_CALLS + r"""
{{ '<|im_end|>\n' }}{% endgeneration %}
{% elif m.role == 'tool' %}{{ '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if not thinks %}{{ '<think>\n\n</think>\n' }}
{% endif %}{% endif %}"""

OLMO2 = r"""{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ '<|system|>\n' + m.content + '\n' }}
{% elif m.role == 'user' %}{{ '<|user|>\n' + m.content + '\n' }}{% elif m.role == 'assistant' %}{{ '<|assistant|>\n' }}
{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% if not loop.last %}{{ '\n' }}{% endif %}{% endif %}
{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"""

OLMO3 = r"""{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are Olmo.<functions>' }}
{{ tools | tojson if tools else '' }}{{ '</functions><|im_end|>\n' }}{% endif %}
{% for m in messages %}{% if m.role == 'system' %}{{ '<|im_start|>system\n' + m.content }}
{% if tools %}{{ '<functions>' + tools | tojson + '</functions>' }}{% endif %}{{ '<|im_end|>\n' }}
{% elif m.role == 'user' %}{{ '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
{% elif m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}{% generation %}{{ m.content or '' }}
{% if m.tool_calls %}{{ '<function_calls>' }}{% for c in m.tool_calls %}
{{ c.function.name + c.function.arguments | tojson }}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}
{{ '</function_calls>' }}{% endif %}{% if loop.last %}{{ eos_token }}{% else %}{{ '<|im_end|>' }}{% endif %}
{% endgeneration %}{% if not loop.last %}{{ '\n' }}{% endif %}
{% elif m.role == 'tool' %}{{ '<|im_start|>environment\n' + m.content + '<|im_end|>\n' }}{% endif %}
{% if loop.last and add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}{% endfor %}"""

PHI3 = r"""{% for m in messages %}{% if m.role == 'system' %}{{ '<|system|>\n' + m.content + '<|end|>\n' }}
{% elif m.role == 'user' %}{{ '<|user|>\n' + m.content + '<|end|>\n' }}
{% elif m.role == 'assistant' %}{{ '<|assistant|>\n' }}{% generation %}{{ m.content + '<|end|>\n' }}{% endgeneration %}
{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""

GRANITE = r"""{% if messages[0].role != 'system' %}
{{ '<|start_of_role|>system<|end_of_role|>You are Granite.<|end_of_text|>\n' }}{% endif %}
{% if tools %}{{ '<|start_of_role|>tools<|end_of_role|>' + tools | tojson + '<|end_of_text|>\n' }}{% endif %}
{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% generation %}
{{ m.content or '' }}{% for c in m.tool_calls or [] %}
{{ ('<|tool_call|>' if loop.first else '') + c.function | tojson }}{% endfor %}{{ '<|end_of_text|>\n' }}
{% endgeneration %}
{% else %}{% set role = 'tool_response' if m.role == 'tool' else m.role %}
{{ '<|start_of_role|>' + role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}"""

HEADERS = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CHATML = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
TURNS = ["<bos>", "<start_of_turn>", "<end_of_turn>"]
LLAMA3_ASKS, CHATML_ASKS = "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|im_start|>assistant\n"
QWEN_CALL, LLAMA_CALL = "<tool_call>\n{}\n</tool_call>", WEATHER.replace("arguments", "parameters")

FAMILIES = {
    "llama 3": Family(LLAMA3, LLAMA3_ASKS, "<|eot_id|>", HEADERS, trims=True, tools=False, bos="<|begin_of_text|>"),
    "llama 3.1": Family(LLAMA3_1, LLAMA3_ASKS, "<|eot_id|>", HEADERS, trims=True, bos="<|begin_of_text|>",
                        call=LLAMA_CALL, calls="refused", said_and_call="refused"),
    "qwen 2.5": Family(QWEN2_5, CHATML_ASKS, "<|im_end|>", CHATML, call=QWEN_CALL),
    "qwen 3": Family(QWEN3, CHATML_ASKS, "<|im_end|>", CHATML, call=QWEN_CALL, last_before="<think>\n\n</think>\n\n"),
    "gemma": Family(GEMMA, "<start_of_turn>model\n", "<end_of_turn>", TURNS, trims=True, tools=False, system=False,
                    bos="<bos>"),
    "gemma 3": Family(GEMMA3, "<start_of_turn>model\n", "<end_of_turn>", TURNS, trims=True, tools=False, bos="<bos>"),
    "mistral": Family(MISTRAL, ("[/INST]", "[/TOOL_RESULTS]"), "</s>", ["<s>", "</s>", "[INST]", "[/INST]",
                      "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"],
                      before=" ", trims=True, bos="<s>", eos="</s>",
                      call='[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}, "id": "abcdefgh1"}]',
                      calls='[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}, "id": "abcdefgh1"}, '
                            '{"name": "sum", "arguments": {"values": [1, 2]}, "id": "abcdefgh2"}]',
                      said_and_call="refused"),
    "smollm3": Family(SMOLLM3, "<|im_start|>assistant\n<think>\n\n</think>\n", "<|im_end|>", CHATML, call=QWEN_CALL),
    "olmo 2": Family(OLMO2, "<|assistant|>\n", "<|endoftext|>", ["<|endoftext|>"], tools=False, bos="<|endoftext|>",
                     eos="<|endoftext|>"),
    "olmo 3": Family(OLMO3, CHATML_ASKS, "<|im_end|>", CHATML, eos="<|endoftext|>", last_end="<|endoftext|>",
                     call='<function_calls>weather{"city": "Paris"}</function_calls>',
                     calls='<function_calls>weather{"city": "Paris"}\nsum{"values": [1, 2]}</function_calls>',
                     said_and_call='Let me see.<function_calls>weather{"city": "Paris"}</function_calls>'),
    "phi 3": Family(PHI3, "<|assistant|>\n", "<|end|>", ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
                                                         "<|endoftext|>"], tools=False, eos="<|endoftext|>"),
    "phi 3.5": Family(PHI3.replace("m.role == 'system' %", "m.role == 'system' and m.content %"), "<|assistant|>\n",
                      "<|end|>", ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"], tools=False,
                      eos="<|endoftext|>"),
    "granite": Family(GRANITE, "<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>",
                      ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"],
                      call="<|tool_call|>" + WEATHER, calls="<|tool_call|>" + WEATHER + SUM,
                      said_and_call="Let me see.<|tool_call|>" + WEATHER),
}
