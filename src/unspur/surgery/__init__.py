"""Put a removal into a model: fold it into the next linear layer, hook it into a network, or export it.

torch and onnx are imported only by the functions that need them.
"""

from unspur.surgery.folding import fold, to_onnx
from unspur.surgery.hooks import Attachment, as_module, attach

__all__ = ["Attachment", "as_module", "attach", "fold", "to_onnx"]
